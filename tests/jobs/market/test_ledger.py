"""The ledger against the bill of the fake marketplace: several rentals, in several states, with losses on the way."""

from __future__ import annotations

import pytest

from jobs.market import ledger
from jobs.market.accrual import spent
from tests.fakes.vast.market import Market
from tests.jobs.market.vast_scene import VastScene

CENT = 0.005
UNKNOWN_BYTES = (700_000_000, 90_000_000)
UNKNOWN_DOLLARS = 0.7 * 0.02 + 0.09 * 0.03


def lines(scene: VastScene) -> list[ledger.Line]:
    with scene.context.sessions() as session:
        return ledger.read(session, 0, 2**53)


def bills(scene: VastScene) -> dict[str, float]:
    """The market's own bill of all that it let to us, by label."""
    return {i.label or "": scene.market.bill(i.id) for i in scene.market.instances.values() if not i.foreign}


@pytest.mark.crash
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_ledger_equals_the_bill_to_the_cent(vast_scene: VastScene, vast_market: Market) -> None:
    scene, market = vast_scene, vast_market
    for machine in market.machines.values():  # so dear that a second is half a cent
        machine.dollars_per_gpu_hour *= 60
        machine.dollars_per_gb_down, machine.dollars_per_gb_up = 0.02, 0.03

    ordinary = scene.request(proofs=2, max_dollars=15.0)
    scene.until(lambda: bool(scene.machines_of(ordinary)))
    # Layers of the image, say: nobody tells us of them.
    market.transfer(market.instances[int(scene.machines_of(ordinary)[0].provider_id or 0)], *UNKNOWN_BYTES)
    scene.finish(ordinary)

    # The answer to this create is lost: what was rented is found by its label, and was paid for all the time.
    market.fault("PUT /api/v0/asks", "reset_after")
    scene.finish(scene.request(proofs=2, max_dollars=15.0))

    # Outbid while it works: the run goes on to another machine, and both cost.
    interruptible = scene.request(proofs=4, interruptible=True, max_dollars=15.0)
    scene.until(lambda: bool(scene.machines_of(interruptible)))
    first = market.instances[int(scene.machines_of(interruptible)[0].provider_id or 0)]
    scene.until(lambda: first.actual == "running")
    market.life.outbid(first)
    scene.finish(interruptible)
    assert len(scene.machines_of(interruptible)) == 2

    before = ledger.totals(lines(scene))
    assert (before.billed, before.difference) == (0.0, 0.0)
    theirs = bills(scene)
    assert len(theirs) == 4
    assert sum(theirs.values()) > 0.5
    # While the bill is not there: an upper bound, but for bytes that we know nothing of.
    assert before.ours >= sum(theirs.values()) - UNKNOWN_DOLLARS
    scene.tick(26 * 3600)

    found = [line for line in lines(scene) if line.owner == ledger.OURS]
    assert {line.label for line in found} == set(theirs)
    for label, dollars in theirs.items():
        mine = [line for line in found if line.label == label]
        assert sum(line.dollars for line in mine) == pytest.approx(dollars, abs=CENT)
        assert all(line.complete for line in mine)
    totals = ledger.totals(lines(scene))
    assert totals.ours == pytest.approx(sum(theirs.values()), abs=CENT)
    assert totals.ours == totals.billed
    assert totals.difference == pytest.approx(totals.ours - totals.accrued)
    assert totals.difference <= UNKNOWN_DOLLARS

    # The pages' sums are the same ones.
    rows = [row for row in scene.instances() if row.rented_ms is not None]
    assert sum(spent(row, scene.clock()) for row in rows) == pytest.approx(totals.ours)
    assert [row.billed_dollars for row in rows] == pytest.approx([theirs[row.label] for row in rows], abs=CENT)
    assert len(scene.events("bill.complete")) == len(rows)
    # A stranger's machine is on the same bill, and apart from ours.
    assert totals.strangers == pytest.approx(market.bill(scene.stranger.id), rel=0.1)
    assert totals.orphans == 0.0
    scene.check()
