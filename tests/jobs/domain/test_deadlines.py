"""Every limit in time and money, each from SQL alone."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.domain.deadlines import enforce, lost, used_up
from jobs.domain.models import Instance, Run
from jobs.market.accrual import spent
from tests.jobs.rows import NOW, new_instance, new_run
from tests.jobs.scene import Scene

FAR = NOW + 10**10
OPEN: dict[str, Any] = {
    "stage": "benchmark", "stage_ms": NOW, "stage_deadline_ms": FAR, "moved_ms": NOW, "lease_expires_ms": FAR,
    "heard_ms": NOW, "rented_ms": NOW, "dollars_per_hour": 0.36, "reserved_dollars": 100.0,
}  # fmt: skip


def why(scene: Scene, after_s: float, run: dict[str, Any] | None = None, **fields: Any) -> str:
    asked = Run(**{"payload": "groth16", "max_duration_s": 10**6, "lease_s": 900, **(run or {})})
    instance, now = Instance(**{**OPEN, **fields}), NOW + round(after_s * 1000)
    return lost(instance, asked, now) or used_up(scene.context, instance, asked, now)


@pytest.mark.parametrize(
    ("fields", "run", "at_s", "word"),
    [
        ({"stage_deadline_ms": NOW + 60_000}, {}, 60, "ran into its deadline after 60 s"),
        ({"lease_expires_ms": NOW + 30_000}, {}, 30, "was not heard for 30 s"),
        ({}, {}, 900, "has not moved for 900 s"),
        ({"stage": "params"}, {}, 600, "has not moved for 600 s"),
        ({"moved_ms": FAR}, {"max_duration_s": 120}, 120, "max_duration_s of 120 s"),
        # $0.36/h is $0.0001/s: the tail of 1080 s takes $0.108, so 50 s are left of $0.113.
        ({"moved_ms": FAR, "reserved_dollars": 0.113}, {}, 50, "leaves only what sealing may cost"),
        ({"moved_ms": FAR, "reserved_dollars": 0.026}, {"lease_s": 30}, 50, "leaves only what sealing may cost"),
    ],
    ids=["stage", "lease", "silent", "silent-params", "duration", "money", "money-short-lease"],
)
def test_each_limit_bites_when_it_is_passed_and_not_before(
    scene: Scene, fields: dict[str, Any], run: dict[str, Any], at_s: float, word: str
) -> None:
    assert why(scene, at_s - 0.1, run, **fields) == ""
    assert word.split(" after")[0].split(" for")[0] in why(scene, at_s + 0.1, run, **fields)


def test_what_never_ends_a_machine(scene: Scene) -> None:
    # Slow but advancing; free of charge; not registered yet, so without a lease.
    assert why(scene, 3000, moved_ms=NOW + 2_900_000) == ""
    assert why(scene, 800, dollars_per_hour=0.0, reserved_dollars=0.0) == ""
    assert why(scene, 800, lease_expires_ms=None) == ""


def test_the_cap_holds_with_the_tail_whatever_happens(scene: Scene) -> None:
    """From the moment that money runs out, the controller may die at once: the lease ends it within the reservation."""
    agent = scene.working(max_dollars=0.2, max_duration_s=10**5)
    for _ in range(200):
        scene.clock.advance(20)
        if scene.instance(agent.instance_id).state != "benchmarking":
            break
        agent.lease("benchmark", done=scene.clock() % 997)
        enforce(scene.context)
    instance = scene.instance(agent.instance_id)
    assert instance.state == "sealing"
    tail_ms = (120 + 900 + 60) * 1000
    assert spent(instance, instance.state_ms + tail_ms) <= 0.2 + 0.36 * 20 / 3600
    assert scene.run(agent.run_id).state == "failed"
    assert "reservation" in scene.run(agent.run_id).reason


def test_overdue_machines_are_sealed_and_their_runs_fail(scene: Scene) -> None:
    run = new_run(scene.context)
    late = new_instance(scene.context, run_id=run.id, **{**OPEN, "stage_deadline_ms": NOW - 1}, state="benchmarking")
    orphan = new_instance(scene.context, **{**OPEN, "stage_deadline_ms": NOW - 1}, state="fetching")
    renting = new_instance(scene.context, stage_deadline_ms=NOW - 1, state="renting")
    sealing = new_instance(scene.context, stage_deadline_ms=NOW - 1, state="sealing")
    assert enforce(scene.context) == 2
    assert enforce(scene.context) == 0
    assert [scene.instance(i.id).state for i in (late, orphan, renting, sealing)] == [
        "sealing",
        "sealing",
        "renting",
        "sealing",
    ]
    assert scene.run(run.id).state == "failed"
    assert scene.instance(late.id).evidence_deadline_ms == scene.clock() + 120_000


def test_a_verdict_outlives_its_machine(scene: Scene) -> None:
    run = new_run(scene.context, state="passed", reason="12 of 12")
    new_instance(scene.context, run_id=run.id, **{**OPEN, "stage_deadline_ms": NOW - 1}, state="serving")
    assert enforce(scene.context) == 1
    assert (scene.run(run.id).state, scene.run(run.id).reason) == ("passed", "12 of 12")


def test_the_account_is_kept(scene: Scene) -> None:
    live = new_instance(scene.context, **OPEN, state="benchmarking", run_id=new_run(scene.context).id)
    for _ in range(7):
        scene.clock.advance(10)
        enforce(scene.context)
    instance = scene.instance(live.id)
    assert instance.spent_dollars == pytest.approx(0.006)  # once a minute
    assert spent(instance, scene.clock()) == pytest.approx(0.007)


def test_a_run_left_without_a_machine_is_woken(scene: Scene) -> None:
    left, busy, over = new_run(scene.context), new_run(scene.context), new_run(scene.context, state="passed")
    new_instance(scene.context, run_id=busy.id, **OPEN, state="benchmarking")
    new_instance(scene.context, run_id=left.id, state="not_rented")
    enforce(scene.context)
    assert [scene.run(r.id).wake_at_ms is not None for r in (left, busy, over)] == [True, False, False]


@pytest.mark.parametrize("away", [False, True])
def test_a_lease_that_ran_out_while_we_were_away_is_held_against_nobody(scene: Scene, away: bool) -> None:
    agent = scene.registered()
    scene.tick(3, times=2)
    scene.tick_until(
        lambda: scene.instance(agent.instance_id).state == "sealing", limit=100, seconds=1000 if away else 10
    )
    instance = scene.instance(agent.instance_id)
    assert ("this controller was away" in instance.reason) == away
    assert bool(scene.events("machine.failed")) != away


def test_what_we_could_not_see_moving_is_looked_at_once_more(scene: Scene) -> None:
    """A machine that loads has no lease yet; while we were down, nobody read how far it had come."""
    _, instance_id = scene.rented()
    scene.tick(3, times=2)
    scene.market.show(scene.instance(instance_id).label, status="loading", detail="layer 1")
    scene.tick(3, times=2)
    scene.market.show(scene.instance(instance_id).label, status="loading", detail="layer 2")
    scene.tick(900)
    assert scene.instance(instance_id).state == "loading"
    scene.tick(3, times=4)
    assert scene.instance(instance_id).state == "loading", "it had moved on"
