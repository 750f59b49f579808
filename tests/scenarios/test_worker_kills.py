"""SIGKILL of the job workers, at every step: a step is delayed, none is lost, and nothing is rented twice."""

from __future__ import annotations

import random

import pytest

from jobs.domain.states import VERDICTS
from tests.scenarios.runs import SETTLE_S, Asked, ask
from tests.scenarios.world import PATIENCE, World, end_tree, wait_for

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]


def job_runs(asked: Asked, state: str) -> bool:
    """True while a job holds the run's row (`queued`) or its instance's, in that state."""
    now = asked.world.context.now_ms()
    row = asked.row()
    assert row.state not in VERDICTS or state in ("sealing", "destroying"), f"{row.state}: {row.reason}"
    held = row if state == "queued" else next((i for i in asked.instances() if i.state == state), None)
    return held is not None and held.state == state and (held.claim_until_ms or 0) > now


def kill_during(asked: Asked, state: str, budget_s: float) -> int:
    """SIGKILL to the whole pool, work horses included, while a job of that state holds its row."""
    world = asked.world
    world.wait_until_runs("workers")

    def struck() -> bool:
        if not job_runs(asked, state):
            return False
        world.kill("workers")
        return True

    wait_for(f"a job in {state}", struck, budget_s)
    return world.context.now_ms()


def test_sigkill_of_all_workers_during_each_job(world: World) -> None:
    """prepare, deploy, benchmark, collect_logs and destroy, each killed in the middle, one after the other."""
    asked = ask(world, 12)
    last = 0
    # Proving takes its time; every other step comes within the promised time after the kill before it.
    budgets = {"queued": 20, "renting": SETTLE_S, "benchmarking": 60, "sealing": 60, "destroying": SETTLE_S}
    for state, budget_s in budgets.items():
        last = kill_during(asked, state, budget_s)
    asked.ends(90)
    asked.passed_all()
    assert (asked.instance().ended_ms or 0) - last <= SETTLE_S * 1000 * PATIENCE, asked.story()


@pytest.mark.crash
def test_sigkill_of_work_horses_only(world: World) -> None:
    """The pool lives, its children die again and again, at random moments."""
    chance = random.Random(7)
    asked = ask(world, 12)
    kills = last = 0

    def strike() -> bool:
        nonlocal kills, last
        if chance.random() < 0.05:
            for process in world.tree("workers")[1:]:
                end_tree(process)
                last, kills = world.context.now_ms(), kills + 1
        return kills >= 12 or asked.row().state in VERDICTS

    wait_for("a dozen kills", strike, 120)
    asked.ends(120)
    asked.passed_all()
    asked.settled(last)


@pytest.mark.crash
def test_sigkill_of_all_workers_at_random_moments(world: World) -> None:
    chance = random.Random(11)
    both = [ask(world, 8), ask(world, 8)]
    last = 0
    for _ in range(4):
        world.goes_on(chance.uniform(0.3, 6))
        last = world.kill("workers")
        world.wait_until_runs("workers")
    for asked in both:
        asked.ends(150)
        asked.passed_all()
        asked.settled(last)
