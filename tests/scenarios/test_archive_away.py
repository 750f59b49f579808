"""The archive is away for a minute: nothing is destroyed unsealed, no chunk is lost, the verdict stays the same."""

from __future__ import annotations

import pytest

from jobs.domain.states import DESTROYED, DESTROYING, VERDICTS
from tests.scenarios.runs import Asked, ask
from tests.scenarios.world import World, wait_for

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]

AWAY_MS = 60_000


def a_minute_passes(world: World, sealing: Asked | None = None) -> None:
    """Wait until the archive has been away for long enough; meanwhile nothing may be destroyed."""
    began = world.context.now_ms()

    def over() -> bool:
        if sealing is not None:
            assert sealing.state() not in (DESTROYING, DESTROYED), sealing.story()
        return world.context.now_ms() - began >= AWAY_MS

    wait_for("a minute without the archive", over, 90)


def test_frozen_for_a_minute_while_sealing_and_while_proving(world: World) -> None:
    """SIGSTOP, the worst way to be away: connections open, and no answer comes. One run is just sealing its
    evidence, another proves, and a third one is asked for meanwhile."""
    fields = {"zkey_id": (first := ask(world, 3)).row().zkey_id, "witness_ids": first.row().inputs["witnesses"]}
    second = ask(world, 40, **fields)
    second.proves(1)
    first.reaches("sealing", "destroying", "destroyed", budget_s=90)
    if first.state() != "sealing":  # it was faster: then another one is caught
        first = ask(world, 2, **fields)
        first.reaches("sealing", budget_s=90)
    with world.frozen("weed"):
        caught = first.state() == "sealing"
        third = ask(world, 3, **fields)
        a_minute_passes(world, first if caught else None)
        assert third.row().state not in VERDICTS
    back = world.context.now_ms()
    for asked in (first, second, third):
        asked.ends(150)
        asked.passed_all()
    second.settled(back)
    for asked in (first, second):
        assert (asked.instance().state_ms - back) < 60_000


@pytest.mark.crash
@pytest.mark.parametrize("state", ["queued", "fetching", "benchmarking", "sealing"])
def test_stopped_for_a_minute(world: World, state: str) -> None:
    """Stopped by its supervisor: connections are refused."""
    asked = ask(world, 12)
    asked.reaches(state, "benchmarking") if state != "queued" else None
    if state == "sealing":
        asked.reaches("sealing")
    with world.stopped("weed"):
        a_minute_passes(world, asked if asked.state() == "sealing" else None)
    back = world.context.now_ms()
    asked.ends(150)
    asked.passed_all()
    asked.settled(back)


@pytest.mark.crash
def test_sigkill_of_weed_in_the_middle(world: World) -> None:
    asked = ask(world, 20)
    asked.proves(2)
    last = world.kill("weed")
    asked.ends(120)
    asked.passed_all()
    asked.settled(last)
