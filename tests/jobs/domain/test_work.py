"""Claims and wakes: who works on a row, and how nothing is forgotten whatever dies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs import reconcile
from jobs.context import Context
from jobs.domain.models import Instance
from jobs.domain.states import LOST_AFTER_MS
from jobs.domain.work import CLAIM_S, Claim, job_of, take, transaction, wake
from tests.jobs.rows import new_instance, new_run
from tests.jobs.scene import Clock, Scene


def held(context: Context, instance_id: str) -> Claim | None:
    found = take(context, Instance, instance_id, ("renting",))
    return found[0] if found else None


def test_a_row_is_held_by_one_job_and_freed_by_time(context: Context, clock: Clock, scene: Scene) -> None:
    row = new_instance(context, state="renting")
    first = held(context, row.id)
    assert first is not None
    assert held(context, row.id) is None
    clock.advance(CLAIM_S + 0.001)
    second = held(context, row.id)
    assert second is not None
    # The first one comes back from the dead: nothing that it does counts.
    with transaction(context) as session:
        assert first.mine(session) is None
    assert not first.extend()
    first.release(wake_in_s=0)
    assert scene.instance(row.id).claim_token == second.token
    with transaction(context) as session:
        assert second.mine(session) is not None


def test_a_row_in_another_state_is_not_taken(context: Context) -> None:
    assert held(context, new_instance(context, state="loading").id) is None
    assert held(context, "0" * 32) is None


def test_of_many_workers_one_holds_the_row(context: Context, make_context: Callable[..., Context]) -> None:
    row = new_instance(context, state="renting")
    start = threading.Barrier(8)

    def race(_: int) -> bool:
        rival = make_context()
        start.wait()
        return held(rival, row.id) is not None

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(race, range(8))) == 1


def test_a_wake_that_comes_while_the_row_is_held_survives_the_release(
    context: Context, clock: Clock, scene: Scene
) -> None:
    row = new_instance(context, state="renting")
    claim = held(context, row.id)
    assert claim is not None
    clock.advance(1)
    with transaction(context) as session:
        wake(session, session.get_one(Instance, row.id), clock())
    claim.release()
    assert scene.instance(row.id).wake_at_ms == clock() + LOST_AFTER_MS
    assert scene.instance(row.id).job_attempt == 1
    # The job that was enqueued for it found the row held: it asks for a look right after.
    claim = held(context, row.id)
    assert claim is not None
    assert held(context, row.id) is None
    claim.release()
    assert scene.instance(row.id).wake_at_ms == clock() + 1000


def test_a_release_looks_again_at_the_sooner_of_two_times(context: Context, clock: Clock, scene: Scene) -> None:
    row = new_instance(context, state="renting")
    claim = held(context, row.id)
    assert claim is not None
    claim.release(wake_in_s=30)
    assert scene.instance(row.id).wake_at_ms == clock() + 30_000
    claim = held(context, row.id)
    assert claim is not None
    with transaction(context) as session:
        wake(session, session.get_one(Instance, row.id), clock())
    claim.release(wake_in_s=30)
    assert scene.instance(row.id).wake_at_ms == clock() + LOST_AFTER_MS
    claim = held(context, row.id)
    assert claim is not None
    claim.release()
    assert scene.instance(row.id).wake_at_ms is None


def test_a_machine_that_calls_all_the_time_holds_off_nothing(context: Context, clock: Clock, scene: Scene) -> None:
    row = new_instance(context, state="sealing")
    due = clock() + LOST_AFTER_MS
    for _ in range(10):
        with transaction(context) as session:
            wake(session, session.get_one(Instance, row.id), clock())
        clock.advance(1)
    assert scene.instance(row.id).wake_at_ms == due


def test_a_worker_that_dies_leaves_a_row_that_is_looked_at_again(context: Context, clock: Clock, scene: Scene) -> None:
    row = new_instance(context, state="renting")
    assert held(context, row.id) is not None
    assert scene.instance(row.id).wake_at_ms == clock() + CLAIM_S * 1000
    clock.advance(CLAIM_S - 1)
    reconcile.wake_due(context)
    assert scene.instance(row.id).job_attempt == 0
    clock.advance(1.001)
    reconcile.wake_due(context)
    assert scene.instance(row.id).job_attempt == 1


def test_an_error_lets_go_and_is_passed_on(context: Context, clock: Clock, scene: Scene) -> None:
    row = new_instance(context, state="renting")
    claim = held(context, row.id)
    assert claim is not None
    with pytest.raises(ZeroDivisionError), claim.released_on_error():
        raise ZeroDivisionError
    now = scene.instance(row.id)
    assert (now.claim_token, now.wake_at_ms) == (None, clock() + 3000)


def test_extending_holds_on(context: Context, clock: Clock, scene: Scene) -> None:
    row = new_instance(context, state="renting")
    claim = held(context, row.id)
    assert claim is not None
    clock.advance(CLAIM_S - 1)
    assert claim.extend()
    clock.advance(CLAIM_S - 1)
    assert held(context, row.id) is None
    assert scene.instance(row.id).claim_token == claim.token


def test_only_states_with_a_job_are_woken(context: Context, clock: Clock) -> None:
    jobs = {
        state: job_of(new_instance(context, state=state))
        for state in ("renting", "loading", "benchmarking", "proving", "sealing", "destroying", "destroyed")
    }
    assert jobs == {
        "renting": "deploy",
        "loading": None,
        "benchmarking": "benchmark",
        "proving": "benchmark",
        "sealing": "collect_logs",
        "destroying": "destroy",
        "destroyed": None,
    }
    assert job_of(new_run(context, state="queued")) == job_of(new_run(context, state="active")) == "prepare"
    assert job_of(new_run(context, state="passed")) is None
    loading = new_instance(context, state="loading")
    with transaction(context) as session:
        row = session.get_one(Instance, loading.id)
        wake(session, row, clock())
        assert (row.wake_at_ms, row.job_attempt) == (None, 0)
