"""Deaths on the rented machine: of the agent, of the proving daemon, of the bench."""

from __future__ import annotations

import signal

import pytest

from jobs.market import reputation
from tests.scenarios import invariants
from tests.scenarios.runs import Asked, ask
from tests.scenarios.world import World

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(300)]

MANY = 60
"""More proofs than are made before the fault."""
LOST_MS = 2_000


def not_blamed(world: World, asked: Asked) -> None:
    """The machine did nothing wrong: it is not marked broken, and can be rented again."""
    with world.context.sessions() as session:
        mark = reputation.current(session, world.context.now_ms(), "local", asked.instance().machine_id)
    assert mark is None or mark.kind != "broken", mark.reason


def test_sigkill_of_the_agent_keeps_the_log_up_to_two_seconds_before(world: World) -> None:
    asked = ask(world, MANY)
    asked.proves(3)
    died_ms = world.context.now_ms()
    asked.agent().send_signal(signal.SIGKILL)
    row = asked.ends(60)
    instance = asked.instance()
    assert row.state == "failed"
    assert row.reason.startswith("machine vanished at ")
    assert "in stage benchmark, after" in row.reason
    assert died_ms - asked.last_words_ms() <= LOST_MS
    assert instance.evidence == "vanished"
    assert "machine vanished at " in instance.evidence_text
    invariants.bundle_checks(invariants.bundle_of(world, instance))
    not_blamed(world, asked)
    asked.settled(died_ms)


def test_sigkill_of_the_daemon_and_of_the_bench_are_named(world: World) -> None:
    """Two runs at a time, one fault each."""
    killed = {}
    runs = {word: ask(world, MANY) for word in ("serve", "bench")}
    for word, asked in runs.items():
        asked.proves(3)
        process = asked.program(word)
        process.send_signal(signal.SIGKILL)
        killed[word] = world.context.now_ms()
    for word, asked in runs.items():
        row = asked.ends(60)
        assert row.state == "failed", row.reason
        assert "SIGKILL" in row.reason, row.reason
        assert f"of {MANY} proofs" in row.reason
        instance = asked.instance()
        assert (instance.state, instance.evidence) == ("destroyed", "complete"), instance.evidence_text
        assert "SIGKILL" in asked.text("setup")
        invariants.bundle_checks(invariants.bundle_of(world, instance))
        not_blamed(world, asked)
        asked.settled(killed[word])


def test_sigkill_of_the_daemon_before_the_first_proof_is_no_broken_machine(world: World) -> None:
    asked = ask(world, MANY)
    asked.reaches("benchmarking")
    asked.program("serve").send_signal(signal.SIGKILL)
    row = asked.ends(90)
    assert row.state == "failed", row.reason
    assert "SIGKILL" in row.reason, row.reason
    not_blamed(world, asked)


@pytest.mark.crash
def test_a_frozen_agent_comes_back_and_is_believed(world: World) -> None:
    """SIGSTOP for less than the lease: the machine is slow, not gone."""
    asked = ask(world, 30)
    asked.proves(3)
    agent = asked.agent()
    agent.suspend()
    world.goes_on(8)
    agent.resume()
    asked.ends(120)
    asked.passed_all()
