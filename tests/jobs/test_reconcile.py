"""The process that makes everything agree: one leader, nothing forgotten, with Redis down too."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs import reconcile
from jobs.context import Context
from jobs.domain.models import Run
from jobs.prepare import prepare
from tests.jobs.crash import describe
from tests.jobs.rows import new_instance, new_run
from tests.jobs.scene import Clock, Scene


def test_one_leads(context: Context, clock: Clock) -> None:
    assert reconcile.lead(context, "a")
    assert reconcile.lead(context, "a")
    assert not reconcile.lead(context, "b")
    clock.advance(15.001)
    assert reconcile.lead(context, "b")
    assert not reconcile.lead(context, "a")
    reconcile.resign(context, "a")
    assert not reconcile.lead(context, "a")
    reconcile.resign(context, "b")
    clock.advance(0.001)
    assert reconcile.lead(context, "a")


def test_of_many_that_start_at_once_one_leads(context: Context, make_context: Callable[..., Context]) -> None:
    start = threading.Barrier(6)

    def race(number: int) -> bool:
        rival = make_context()
        start.wait()
        return reconcile.lead(rival, f"holder {number}")

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(race, range(6))) == 1


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_two_processes(scene: Scene) -> None:
    program = "import sys; from tests.jobs.crash import context_of; from jobs.reconcile import lead\n"
    program += "print(lead(context_of(sys.argv[1]), sys.argv[2]))"
    both = [
        subprocess.Popen([sys.executable, "-c", program, describe(scene), holder], stdout=subprocess.PIPE, text=True)
        for holder in ("a", "b")
    ]
    assert sorted(process.communicate(timeout=60)[0].strip() for process in both) == ["False", "True"]


def test_a_whole_run_without_redis(scene: Scene) -> None:
    """Every job but `prepare` (which makes keys) is done by reconcile itself."""
    run_id, instance_id = scene.placed(proofs=2)
    scene.tick_until(lambda: scene.instance(instance_id).state == "loading")
    from tests.jobs.agent import Agent

    agent = Agent(scene.context, scene.clock, run_id, instance_id).register(scene.bootstrap_token(instance_id))
    agent.lease("benchmark")
    agent.pull()
    agent.ship("bench", "hello\n")
    for index in range(2):
        scene.clock.advance(3)
        agent.prove(index)
    scene.tick_until(lambda: scene.run(run_id).state == "passed", 20)
    assert agent.seal().accepted
    scene.tick_until(lambda: scene.instance(instance_id).state == "destroyed", 20)
    assert scene.instance(instance_id).evidence == "complete"
    # Nothing is left to do, ever.
    before = len(scene.events())
    scene.tick(times=20)
    assert scene.events()[before:] == []
    assert scene.run(run_id).wake_at_ms is None
    assert scene.instance(instance_id).wake_at_ms is None


def test_a_wake_left_over_in_a_state_without_a_job_is_dropped(scene: Scene) -> None:
    row = new_instance(scene.context, state="loading", wake_at_ms=1)
    reconcile.wake_due(scene.context)
    assert scene.instance(row.id).wake_at_ms is None


def test_a_held_row_is_left_alone(scene: Scene) -> None:
    row = new_instance(scene.context, state="sealing", wake_at_ms=1, claim_token="t", claim_until_ms=scene.clock() + 9)
    reconcile.wake_due(scene.context)
    assert (scene.instance(row.id).job_attempt, scene.instance(row.id).state) == (0, "sealing")


def test_a_run_that_waits_for_an_offer_gets_it_when_it_is_free(scene: Scene) -> None:
    first = scene.working()
    second = scene.request()
    prepare(second, 1)
    assert scene.run(second).stage == "waiting for a free offer"
    scene.market.exit(scene.instance(first.instance_id).label)
    scene.tick_until(lambda: scene.instance(first.instance_id).state == "destroyed")
    scene.clock.advance(61)
    prepare(second, 2)
    assert scene.run(second).state == "active"


@pytest.mark.parametrize("state", ["queued", "active"])
def test_runs_are_woken_too(scene: Scene, state: str) -> None:
    run = new_run(scene.context, state=state, wake_at_ms=1)
    reconcile.wake_due(scene.context)
    with scene.context.sessions() as session:
        assert session.get_one(Run, run.id).job_attempt == 1


def test_what_waits_for_a_provider_runs_beside_and_never_twice() -> None:
    go_on, begun = threading.Event(), []
    beside = reconcile.Beside()

    def slow(name: str) -> None:
        begun.append(name)
        assert go_on.wait(20)

    for name in ("watch:vast", "watch:vast", "billing"):
        beside(name, slow, name)
    deadline = time.monotonic() + 20
    while len(begun) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    beside("watch:vast", slow, "again")
    assert sorted(begun) == ["billing", "watch:vast"]
    go_on.set()
    while "again" not in begun and time.monotonic() < deadline:
        beside("watch:vast", slow, "again")
        time.sleep(0.01)
    assert begun.count("again") == 1


def test_what_fails_beside_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    failed = threading.Event()

    def fails() -> None:
        failed.set()
        raise RuntimeError("no such luck")

    beside = reconcile.Beside()
    deadline = time.monotonic() + 20
    while "no such luck" not in caplog.text and time.monotonic() < deadline:
        beside("billing", fails)
        time.sleep(0.01)
    assert failed.is_set()
    assert "billing failed; the next tick tries again" in caplog.text
