"""Redis only wakes things up: emptied, killed or away, every run ends as it would have."""

from __future__ import annotations

import pytest

from jobs.domain.states import ENDED, VERDICTS
from tests.scenarios.runs import ask
from tests.scenarios.world import World, wait_for

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(400)]


def test_flushall_in_each_state(world: World) -> None:
    asked = ask(world, 8)
    flushed: list[str] = []
    last = 0

    def flush_in_each() -> bool:
        nonlocal last
        state = asked.state()
        if state not in flushed:
            world.flushall()
            flushed.append(state)
            last = world.context.now_ms()
        return asked.row().state in VERDICTS and state in ENDED

    wait_for("the end", flush_in_each, 180)
    # `loading`, `fetching` and `ready` may be over between two looks.
    assert {"queued", "renting", "benchmarking", "sealing", "destroying"} <= set(flushed), flushed
    asked.passed_all()


@pytest.mark.crash
def test_flushall_all_the_time(world: World) -> None:
    asked = ask(world, 4)

    def flush() -> bool:
        world.flushall()
        return asked.row().state in VERDICTS and asked.state() in ENDED

    wait_for("the end", flush, 180)
    asked.passed_all()


def test_sigkill_of_valkey(world: World) -> None:
    """Killed when the run is asked for, and again in the middle of the benchmark; its supervisor restarts it."""
    world.kill("valkey")
    asked = ask(world, 12)
    asked.proves(2)
    last = world.kill("valkey")
    asked.ends(90)
    asked.passed_all()
    asked.settled(last)
    world.wait_until_runs("valkey")
    world.wait_until_runs("workers")


@pytest.mark.crash
def test_valkey_away_for_twenty_seconds(world: World) -> None:
    """Runs go on without Redis: reconcile does the steps itself."""
    asked = ask(world, 12)
    asked.proves(2)
    with world.stopped("valkey"):
        late = ask(world, 4)
        world.goes_on(20)
        wait_for("the verdict, without Redis", lambda: asked.row().state in VERDICTS, 60)
    back = world.context.now_ms()
    for each in (asked, late):
        each.ends(120)
        each.passed_all()
    asked.settled(back)
    world.wait_until_runs("workers")
