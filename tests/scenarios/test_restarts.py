"""`up` and its programs end and come back in the middle of a benchmark: the local agent survives and is found again."""

from __future__ import annotations

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
def test_sigkill_of_up_and_a_later_up(world: World) -> None:
    """One run is sealing its evidence, another proves."""
    sealing = ask(world, 3)
    proving = ask(world, 40)
    sealing.reaches("sealing", "destroying", budget_s=90)
    world.stop_up(signal.SIGKILL)
    world.restart()
    back = world.context.now_ms()
    for asked in (sealing, proving):
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
