"""The archive is away for a minute: nothing is destroyed unsealed, no chunk is lost, the verdict stays the same."""

from __future__ import annotations

import pytest

from jobs.domain.states import DESTROYED, DESTROYING, VERDICTS
from tests.scenarios.runs import FIXTURE, Asked, ask, the_key
from tests.scenarios.world import PATIENCE, World

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]

AWAY_S = 60
BN254 = FIXTURE.parent / "bn254_chain1k"


def not_destroyed(asked: Asked) -> None:
    assert asked.state() not in (DESTROYING, DESTROYED), asked.story()


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
        world.goes_on(AWAY_S, lambda: not_destroyed(first) if caught else None)
        assert third.row().state not in VERDICTS
    back = world.context.now_ms()
    for asked in (first, second, third):
        asked.ends(150)
        asked.passed_all()
    second.settled(back)
    for asked in (first, second):
        assert asked.instance().state_ms - back < 60_000 * PATIENCE


@pytest.mark.crash
def test_stopped_for_a_minute_while_fetching_and_while_proving(world: World) -> None:
    """Stopped by its supervisor: connections are refused. Nobody has the key in the cache yet."""
    second = ask(world, 40)
    second.proves(1)
    key, witness = (
        the_key(world, kind, (BN254 / name).read_bytes())
        for kind, name in (("zkey", "circuit.zkey"), ("wtns", "witness.wtns"))
    )
    first = ask(world, 2, zkey_id=key.id, witness_ids=[witness.id])
    first.reaches("renting", "loading", "fetching", budget_s=60)
    with world.stopped("weed"):
        world.goes_on(AWAY_S - 15, lambda: not_destroyed(first))  # it took 15 s to leave
    back = world.context.now_ms()
    for asked in (first, second):
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
