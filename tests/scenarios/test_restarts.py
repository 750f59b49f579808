"""`up` and its programs end and come back in the middle of a benchmark: the local agent survives and is found again."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from tests.scenarios.runs import ask
from tests.scenarios.world import World

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]


def test_sigterm_of_up_and_a_later_up(world: World) -> None:
    asked = ask(world, 40)
    asked.proves(2)
    agent = asked.agent()
    world.stop_up(signal.SIGTERM)
    assert world.up.process.returncode == 0, world.up.output
    assert agent.is_running()
    assert agent.status() != psutil.STATUS_ZOMBIE
    world.restart()
    back = world.context.now_ms()
    asked.ends(150)
    asked.passed_all()
    asked.settled(back)


@pytest.mark.crash
@pytest.mark.parametrize("state", ["benchmarking", "sealing", "destroying"])
def test_sigkill_of_up_and_a_later_up(world: World, state: str) -> None:
    asked = ask(world, 30 if state == "benchmarking" else 3)
    asked.reaches(state, budget_s=90)
    world.stop_up(signal.SIGKILL)
    world.restart()
    back = world.context.now_ms()
    asked.ends(150)
    asked.passed_all()
    asked.settled(back)


@pytest.mark.crash
def test_sigkill_of_everything_but_the_agent(world: World) -> None:
    """As a power cut of the control plane: `up`, supervisord, stores and all go at the same moment."""
    asked = ask(world, 30)
    asked.proves(2)
    mine = {asked.agent().pid, *(p.pid for p in asked.agent().children(recursive=True))}
    everyone = psutil.Process(world.up.process.pid).children(recursive=True)
    for process in [psutil.Process(world.up.process.pid), *everyone]:
        if process.pid not in mine:
            process.kill()
    world.up.process.wait(timeout=20)
    world.restart()
    back = world.context.now_ms()
    asked.ends(150)
    asked.passed_all()
    asked.settled(back)


def test_sigkill_of_reconcile_machine_app_and_site(world: World) -> None:
    """All three at a time, when the work begins and again when it is nearly done."""
    asked = ask(world, 16)
    asked.reaches("fetching", "benchmarking")
    for program in ("reconcile", "machine", "site"):
        world.kill(program)
    asked.proves(6)
    last = max(world.kill(program) for program in ("reconcile", "machine", "site"))
    asked.ends(120)
    asked.passed_all()
    asked.settled(last)
    for program in ("reconcile", "machine", "site"):
        world.wait_until_runs(program)


@pytest.mark.crash
def test_sigkill_of_supervisord_ends_all_and_the_next_up_goes_on(world: World) -> None:
    asked = ask(world, 30)
    asked.proves(2)
    os.kill(int((world.state_dir / "supervisord.pid").read_text()), signal.SIGKILL)
    world.up.process.wait(timeout=60)
    world.restart()
    back = world.context.now_ms()
    asked.ends(150)
    asked.passed_all()
    asked.settled(back)
