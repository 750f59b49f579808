"""Whatever the marketplace makes of a machine, with the controller alive its bill never passes the reservation.

With the controller dead the machine ends itself when its lease is out; the same tail covers that.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.domain import deadlines
from jobs.domain.models import Instance, Run
from jobs.market import listing
from jobs.market.accrual import spent
from jobs.market.prices import ALLOWED_DOWN_BYTES, ALLOWED_UP_BYTES, Price, least_dollars, priced, tail_s
from tests.fakes.vast.instances import Instance as Rented
from tests.fakes.vast.market import Market
from tests.jobs.market.vast_scene import VastScene
from tests.jobs.rows import new_instance, new_run

TICK_S, LEASE_S = 15.0, 30
FAR = 2**50
STATES = ("running", "loading", "stopped", "exited", "frozen", "unknown", "offline", "rebooting")
STEPS = st.lists(st.tuples(st.sampled_from(STATES), st.integers(1, 6)), max_size=8)
SHARE = st.floats(0, 1)
LIMITS = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


def become(market: Market, rented: Rented, state: str) -> None:
    if state == "stopped":
        market.life.stop(rented, "stopped")
        return
    market.life.halt(rented)
    market.life.set(rented, actual=state, intended="running", cur="running", next="running")


def begin(scene: VastScene, useful_s: int) -> tuple[str, Rented, Price]:
    """A machine that works, with a reservation for `useful_s` seconds and the tail."""
    context, market = scene.context, scene.market
    machine = market.add_machine(dollars_per_gpu_hour=3.0, dollars_per_gb_down=0.01, dollars_per_gb_up=0.02)
    theirs = market.add_instance(scene.account, f"{scene.ours}{context.new_id()}", machine, foreign=False)
    price = priced(theirs.dph_base, theirs.disk_dollars_per_hour, 0.01, 0.02)
    held = least_dollars(context.settings, price, LEASE_S) + price.dollars_per_hour * useful_s / 3600
    run = new_run(context, provider="vast", lease_s=LEASE_S, max_duration_s=10**6)
    now = scene.clock()
    mine = new_instance(
        context, run_id=run.id, provider="vast", provider_id=str(theirs.id), label=theirs.label, state="proving",
        stage="prove", stage_ms=now, stage_deadline_ms=FAR, moved_ms=FAR, rented_ms=now, machine_id=str(machine.id),
        dollars_per_hour=price.dollars_per_hour, price=price.to_json(), reserved_dollars=held,
    )  # fmt: skip
    return mine.id, theirs, price


def tick(scene: VastScene, instance_id: str) -> Instance:
    scene.clock.advance(TICK_S)
    scene.market.clock.catch_up()
    listing.read(scene.context, "vast")
    deadlines.enforce(scene.context)
    return scene.instance(instance_id)


def live_through(
    scene: VastScene, steps: list[tuple[str, int]], useful_s: int, down: float, up: float, end: float
) -> None:
    scene.account.purse.pay(100.0)
    instance_id, theirs, price = begin(scene, useful_s)
    market = scene.market
    for state in (state for state, ticks in [*steps, ("running", 1000)] for _ in range(ticks)):
        become(market, theirs, state)
        if tick(scene, instance_id).state != "proving":
            break
    # Sealing may take all of the tail but the margin; the machine may come back meanwhile, and its bytes still come.
    become(market, theirs, "running")
    market.transfer(theirs, int(down * ALLOWED_DOWN_BYTES), int(up * ALLOWED_UP_BYTES))
    scene.clock.advance(end * (tail_s(scene.context.settings, LEASE_S) - TICK_S))
    market.clock.catch_up()
    deadlines.enforce(scene.context)
    mine, bill = scene.instance(instance_id), market.bill(theirs.id)
    assert mine.state == "sealing"
    assert "reservation" in scene.run(mine.run_id or "").reason
    assert bill <= mine.reserved_dollars + 1e-9
    # Nor does our own account ever say less than the bill, but for the bytes, which are held from the start.
    assert bill <= spent(mine, scene.clock()) + price.traffic_dollars + 1e-9
    with scene.context.sessions() as session:
        session.get_one(Instance, instance_id).state = "destroyed"
        session.get_one(Instance, instance_id).ended_ms = scene.clock()
        assert session.get_one(Run, mine.run_id).state == "failed"
        session.commit()
    market.life.destroy(theirs)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@settings(max_examples=8, **LIMITS)  # type: ignore[arg-type]
@given(steps=STEPS, useful_s=st.integers(0, 120), down=SHARE, up=SHARE, end=SHARE)
def test_a_bill_never_passes_its_reservation(
    vast_scene: VastScene, steps: list[tuple[str, int]], useful_s: int, down: float, up: float, end: float
) -> None:
    live_through(vast_scene, steps, useful_s, down, up, end)


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@settings(max_examples=60, **LIMITS)  # type: ignore[arg-type]
@given(steps=STEPS, useful_s=st.integers(0, 600), down=SHARE, up=SHARE, end=SHARE)
def test_a_bill_never_passes_its_reservation_in_many_lives(
    vast_scene: VastScene, steps: list[tuple[str, int]], useful_s: int, down: float, up: float, end: float
) -> None:
    live_through(vast_scene, steps, useful_s, down, up, end)
