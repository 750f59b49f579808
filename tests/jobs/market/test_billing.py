"""Credit and bill, read from the fake marketplace: when, how often, and what they change."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, select

from jobs.domain.market_models import Account, Charge, LedgerDay
from jobs.domain.models import Instance
from jobs.market import billing, ledger
from jobs.market.accrual import DAY_MS
from tests.fakes.vast.instances import Instance as Rented
from tests.fakes.vast.market import Market
from tests.jobs.market.vast_scene import VastScene
from tests.jobs.rows import new_instance

HOUR_S = 3600
CENT = 0.005


def pass_time(scene: VastScene, hours: float) -> None:
    """Only reading the account is due meanwhile."""
    scene.clock.advance(hours * HOUR_S)
    scene.market.clock.catch_up()
    billing.tick(scene.context)


def rented(scene: VastScene, hours: float = 2.0, **fields: Any) -> tuple[Instance, Rented]:
    """A rental that was, for so long: its row, and what the market knows of it."""
    theirs = scene.market.add_instance(scene.account, f"{scene.ours}{scene.context.new_id()}", foreign=False)
    begun = scene.clock()
    scene.clock.advance(hours * HOUR_S)
    scene.market.clock.catch_up()
    scene.market.life.destroy(theirs)
    values = {
        "provider": "vast", "provider_id": str(theirs.id), "label": theirs.label, "state": "destroyed",
        "rented_ms": begun, "accrued_ms": scene.clock(), "ended_ms": scene.clock(), "delete_sent_ms": scene.clock(),
        "spent_dollars": 1.0, **fields,
    }  # fmt: skip
    mine = new_instance(scene.context, **values)
    with scene.context.sessions() as session:
        session.add(LedgerDay(instance_id=mine.id, day_ms=begun - begun % DAY_MS, gpu_dollars=1.0))
        session.commit()
    return mine, theirs


def account(scene: VastScene) -> Account:
    with scene.context.sessions() as session:
        return session.get_one(Account, "vast")


def calls(scene: VastScene, route: str) -> int:
    return sum(seen.route == route for seen in scene.market.requests)


def totals(scene: VastScene) -> ledger.Totals:
    with scene.context.sessions() as session:
        return ledger.totals(ledger.read(session, 0, 2**53))


def test_the_credit_is_read_each_minute_and_the_bill_each_hour(vast_scene: VastScene) -> None:
    scene = vast_scene
    for _ in range(60):
        pass_time(scene, 1 / 60)
    for _ in range(4):
        pass_time(scene, 0.5 / 60)
    assert calls(scene, "GET /api/v0/users/current") == 62
    assert calls(scene, "GET /api/v0/charges") == 2
    read = account(scene)
    assert read.credit_dollars == pytest.approx(scene.account.purse.credit, abs=0.01)
    assert (read.error, read.charges_error) == ("", "")
    assert scene.market.violations == []


def test_after_a_rental_ended_the_bill_is_read_a_minute_later(vast_scene: VastScene) -> None:
    scene = vast_scene
    pass_time(scene, 0.01)
    rented(scene, hours=0.1)
    pass_time(scene, 0.01)
    assert calls(scene, "GET /api/v0/charges") == 1
    pass_time(scene, 0.01)
    pass_time(scene, 0.05)
    pass_time(scene, 0.05)
    assert calls(scene, "GET /api/v0/charges") == 2


def test_low_credit_is_said_once_and_marks_nobody(vast_scene: VastScene, vast_market: Market) -> None:
    scene, purse = vast_scene, vast_scene.account.purse
    for pay in (0.0, 1.5 - purse.credit, -0.01, -2.0, 10.0):
        purse.pay(pay)
        pass_time(scene, 1 / 60)
    told = [(event.kind, event.data["provider"]) for event in scene.events() if event.kind.startswith("account.")]
    assert told == [("account.low", "vast"), ("account.exhausted", "vast"), ("account.enough", "vast")]
    assert "the floor is $2.00" in scene.events("account.low")[0].reason


def test_an_account_that_can_not_be_read_says_why_once(vast_scene: VastScene, vast_market: Market) -> None:
    scene = vast_scene
    pass_time(scene, 0.01)
    known = account(scene).credit_dollars
    vast_market.fault("GET /api/v0/users/current", "500_before", times=50)
    for _ in range(4):
        pass_time(scene, 1 / 60)
    broken = account(scene)
    assert broken.error != ""
    assert broken.credit_dollars == known
    assert (broken.read_ms or 0) < (broken.tried_ms or 0)
    assert len(scene.events("account.unreadable")) == 1
    vast_market.faults.clear()
    pass_time(scene, 1 / 60)
    assert account(scene).error == ""


def test_reading_twice_changes_nothing(vast_scene: VastScene) -> None:
    scene = vast_scene
    mine, theirs = rented(scene)
    found = []
    for _ in range(3):
        pass_time(scene, 7)
        billing.read_charges(scene.context, "vast")
        with scene.context.sessions() as session:
            found.append(
                session.execute(
                    select(func.count(), func.sum(Charge.dollars)).where(Charge.provider_id == str(theirs.id))
                ).one()
            )
    assert found[0] == found[1] == found[2]
    assert found[0][1] == pytest.approx(scene.market.bill(theirs.id), abs=CENT)
    assert scene.instance(mine.id).billed_dollars is None  # 24 hours are not over
    pass_time(scene, 4)
    assert scene.instance(mine.id).billed_dollars == pytest.approx(scene.market.bill(theirs.id), abs=CENT)
    pass_time(scene, 1)
    assert len(scene.events("bill.complete")) == 1


def test_the_difference_is_told_in_dollars(vast_scene: VastScene) -> None:
    scene = vast_scene
    mine, theirs = rented(scene)
    pass_time(scene, 1.5)
    bill = scene.market.bill(theirs.id)
    # As far as it is known it stands beside our own account, which counts.
    with scene.context.sessions() as session:
        (line,) = [line for line in ledger.read(session, 0, 2**53) if line.owner == ledger.OURS]
    assert (line.accrued, line.dollars, line.complete, line.difference) == (1.0, 1.0, False, 0.0)
    assert line.billed is not None
    pass_time(scene, 26)
    found = totals(scene)
    assert found.ours == pytest.approx(bill, abs=CENT)
    assert found.difference == pytest.approx(bill - 1.0, abs=CENT)
    event = scene.events("bill.complete")[0]
    assert event.instance_id == mine.id
    assert event.data == {"billed": pytest.approx(bill, abs=CENT), "accrued": 1.0}


def test_a_bill_over_midnight_is_parted_by_days(vast_scene: VastScene) -> None:
    scene = vast_scene
    _, theirs = rented(scene, hours=30.0)
    pass_time(scene, 26)
    with scene.context.sessions() as session:
        days = session.scalars(select(LedgerDay.billed_dollars).order_by(LedgerDay.day_ms)).all()
    rate = theirs.dph_base + theirs.disk_dollars_per_hour
    first = (DAY_MS - theirs.created_ms % DAY_MS) / 3_600_000
    hours = [first, 24.0, 30.0 - first - 24.0] if first < 6 else [first, 30.0 - first]
    assert list(days) == pytest.approx([rate * h for h in hours], abs=CENT)


def test_a_bill_that_lags_counts_when_it_reaches_the_end(vast_scene: VastScene, vast_market: Market) -> None:
    """vast_api 1.9: 0.79 h were shown of 6.5 h. A day later a part of the bill is there: our own account counts."""
    scene = vast_scene
    vast_market.charges_lag_s = 26 * HOUR_S
    mine, theirs = rented(scene, hours=6.5)
    pass_time(scene, 25)
    assert scene.instance(mine.id).billed_dollars is None
    assert 0.0 < sum(c.dollars for c in _charges(scene, theirs)) < scene.market.bill(theirs.id) - CENT
    pass_time(scene, 2)
    assert scene.instance(mine.id).billed_dollars == pytest.approx(scene.market.bill(theirs.id), abs=CENT)


def test_after_three_days_what_is_billed_is_the_bill_and_later_changes_count(
    vast_scene: VastScene, vast_market: Market
) -> None:
    scene = vast_scene
    vast_market.charges_lag_s = 80 * HOUR_S
    mine, theirs = rented(scene)
    pass_time(scene, 71)
    assert scene.instance(mine.id).billed_dollars is None
    pass_time(scene, 2)
    assert scene.instance(mine.id).billed_dollars == 0.0
    pass_time(scene, 10)
    assert scene.instance(mine.id).billed_dollars == pytest.approx(scene.market.bill(theirs.id), abs=CENT)


def test_a_market_that_does_not_answer_costs_no_bill(vast_scene: VastScene, vast_market: Market) -> None:
    scene = vast_scene
    mine, theirs = rented(scene)
    vast_market.fault("GET /api/v0/charges", "500_before", times=500)
    pass_time(scene, 1)
    pass_time(scene, 25)
    assert account(scene).charges_error != ""
    assert account(scene).charged_until_ms is None
    assert scene.instance(mine.id).billed_dollars is None
    vast_market.faults.clear()
    pass_time(scene, 0.1)
    assert scene.instance(mine.id).billed_dollars == pytest.approx(scene.market.bill(theirs.id), abs=CENT)


def test_a_controller_that_was_away_for_days_reads_them_all(vast_scene: VastScene) -> None:
    scene = vast_scene
    pass_time(scene, 0.1)
    mine, theirs = rented(scene, hours=50)
    pass_time(scene, 30 * 24)
    assert scene.instance(mine.id).billed_dollars == pytest.approx(scene.market.bill(theirs.id), abs=CENT)


def test_a_rental_whose_number_we_never_learned_is_found_by_its_label(vast_scene: VastScene) -> None:
    scene = vast_scene
    mine, theirs = rented(scene, provider_id=None)
    pass_time(scene, 26)
    assert scene.instance(mine.id).billed_dollars == pytest.approx(scene.market.bill(theirs.id), abs=CENT)
    assert totals(scene).orphans == 0.0


def test_orphans_and_strangers_are_kept_apart(vast_scene: VastScene, vast_market: Market) -> None:
    """Rented under our label, gone again before any list showed it: only the bill knows."""
    scene = vast_scene
    orphan = vast_market.add_instance(scene.account, f"{scene.ours}{'ab' * 16}", foreign=False)
    scene.clock.advance(1800)
    vast_market.clock.catch_up()
    vast_market.life.destroy(orphan)
    pass_time(scene, 2)
    found = totals(scene)
    assert found.orphans == pytest.approx(vast_market.bill(orphan.id), abs=CENT)
    assert found.strangers > 0
    assert (found.ours, found.billed) == (0.0, 0.0)


def test_the_ledger_as_a_table(vast_scene: VastScene) -> None:
    scene = vast_scene
    _, theirs = rented(scene)
    pass_time(scene, 1.5)
    with scene.context.sessions() as session:
        early = ledger.text(ledger.recent(session, scene.clock(), 2))
        assert ledger.recent(session, scene.clock() + 5 * DAY_MS, 2) == []
    assert "* as far as the bill is written yet" in early
    pass_time(scene, 26)
    with scene.context.sessions() as session:
        rows = ledger.text(ledger.recent(session, scene.clock(), 3)).splitlines()
    bill = scene.market.bill(theirs.id)
    (ours,) = [row.split() for row in rows if f"vast {theirs.id}" in row]
    assert ours[1:] == ["ours", "vast", str(theirs.id), "1.0000", f"{bill:.4f}", f"{bill - 1:+.4f}"]
    assert f"spent ${bill:.4f}, of which ${bill:.4f} by complete bills" in rows[-2]
    assert any(row.split()[1] == "stranger" for row in rows[1:-2])


def _charges(scene: VastScene, theirs: Rented) -> list[Charge]:
    with scene.context.sessions() as session:
        return list(session.scalars(select(Charge).where(Charge.provider_id == str(theirs.id))))
