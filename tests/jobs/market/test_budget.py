"""Caps, credit and what is held against them, on both databases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import SecretStr

from jobs.context import Context
from jobs.domain.controller import controller_id
from jobs.domain.db import writing
from jobs.domain.market_models import Account, LedgerDay
from jobs.domain.models import Instance, Run
from jobs.domain.placing import place
from jobs.domain.work import take
from jobs.market import budget
from jobs.market.accrual import DAY_MS
from jobs.prepare import prepare
from tests.jobs.rows import NOW, new_instance, new_offer, new_run
from tests.jobs.scene import Scene

HOUR_MS, MINUTE = 3_600_000, 60_000
MIDNIGHT = NOW - NOW % DAY_MS


def refusal(context: Context, run: Run, hold: float) -> str:
    with writing(context.sessions) as session:
        return budget.refusal(context, session, run, hold)


def spend(context: Context, dollars: float, day_ms: int = MIDNIGHT, **fields: Any) -> str:
    """A rental that is over and cost this."""
    one = new_instance(
        context, state="destroyed", rented_ms=day_ms, ended_ms=day_ms + 1, accrued_ms=day_ms + 1,
        spent_dollars=dollars, **fields,
    ).id  # fmt: skip
    with context.sessions() as session:
        session.add(LedgerDay(instance_id=one, day_ms=day_ms, gpu_dollars=dollars))
        session.commit()
    return one


def test_without_caps_anything_may_be_held(scene: Scene) -> None:
    assert refusal(scene.context, new_run(scene.context), 1e6) == ""


@pytest.mark.parametrize("scope", ["day", "month", "user:alice"])
def test_spent_and_held_count_against_a_cap(scene: Scene, scope: str) -> None:
    context = scene.context
    run = new_run(context, created_by="alice")
    budget.set_cap(context, scope, 10.0, "root")
    spend(context, 3.0, run_id=run.id)
    # Of a reservation of 4, 1 is spent already: it stands in the ledger, and 3 are held.
    live = new_instance(
        context, state="proving", rented_ms=NOW, accrued_ms=NOW, reserved_dollars=4.0, spent_dollars=1.0, run_id=run.id
    )
    with context.sessions() as session:
        session.add(LedgerDay(instance_id=live.id, day_ms=MIDNIGHT, gpu_dollars=1.0))
        session.commit()
        assert budget.committed(session, scope, NOW) == budget.Committed(4.0, 3.0)
    assert refusal(context, run, 3.0) == ""
    why = refusal(context, run, 3.01)
    assert "cap" in why
    assert "$10.00: $4.00 are spent, $3.00 held, and this needs $3.01" in why


def test_an_intent_holds_its_reservation_before_it_is_rented(scene: Scene) -> None:
    budget.set_cap(scene.context, "day", 1.0, "root")
    new_instance(scene.context, state="renting", reserved_dollars=0.9)
    assert refusal(scene.context, new_run(scene.context), 0.2) != ""


def test_what_a_cap_does_not_reach(scene: Scene) -> None:
    context = scene.context
    for scope in ("day", "user:bob"):
        budget.set_cap(context, scope, 1.0, "root")
    spend(context, 5.0, MIDNIGHT - DAY_MS)  # yesterday
    spend(context, 0.9, run_id=new_run(context, created_by="alice").id)  # today, but not bob
    assert refusal(context, new_run(context, created_by="bob"), 0.1) == ""
    assert "the day's cap" in refusal(context, new_run(context, created_by="bob"), 0.2)
    assert refusal(context, new_run(context), 0.0) == ""  # this machine, free of charge


def test_a_month_begins_on_its_first_day(scene: Scene) -> None:
    # NOW is 2026-05-28.
    assert budget.begins_ms("month", NOW) == MIDNIGHT - 27 * DAY_MS
    budget.set_cap(scene.context, "month", 1.0, "root")
    spend(scene.context, 5.0, MIDNIGHT - 28 * DAY_MS)
    assert refusal(scene.context, new_run(scene.context), 1.0) == ""
    spend(scene.context, 0.5, MIDNIGHT - 27 * DAY_MS)
    assert refusal(scene.context, new_run(scene.context), 1.0) != ""


def test_the_bill_counts_once_it_is_known(scene: Scene) -> None:
    one = spend(scene.context, 5.0)
    with scene.context.sessions() as session:
        session.get_one(LedgerDay, (one, MIDNIGHT)).billed_dollars = 4.0
        session.commit()
        assert budget.committed(session, "day", NOW).spent == 4.0


def test_a_machine_that_passed_its_reservation_counts_as_it_is(scene: Scene) -> None:
    """It was stopped at its reservation, and the provider does not let it go."""
    new_instance(scene.context, state="destroying", rented_ms=NOW, dollars_per_hour=1.0, reserved_dollars=0.5)
    with scene.context.sessions() as session:
        assert budget.committed(session, "day", NOW + HOUR_MS).held == pytest.approx(1.0)


def test_the_cap_on_a_run_is_what_its_machines_share(scene: Scene) -> None:
    context = scene.context
    run = new_run(context, max_dollars=5.0)

    def left(run: Run) -> float | None:
        with context.sessions() as session:
            return budget.left_dollars(context, session, run)

    assert left(run) == 5.0
    assert left(new_run(context)) is None
    budget.set_cap(context, "run", 2.0, "root")
    assert (left(run), left(new_run(context))) == (2.0, 2.0)
    spend(context, 0.5, run_id=run.id)
    assert left(run) == 1.5
    # One that is on its way out takes at most its tail: 1080 s at $0.36/h.
    new_instance(context, state="sealing", run_id=run.id, rented_ms=NOW, reserved_dollars=1.5)
    assert left(run) == pytest.approx(1.5 - 0.108)


def test_lowering_a_cap_stops_launches_and_says_so(scene: Scene) -> None:
    context = scene.context
    live = new_instance(context, state="proving", rented_ms=NOW, reserved_dollars=4.0)
    assert budget.set_cap(context, "day", 10.0, "root") == "$6.00 of $10.00 are left"
    said = budget.set_cap(context, "day", 3.0, "root")
    assert said.startswith("$4.00 are spent or held already, over the new cap of $3.00: nothing more is rented")
    assert refusal(context, new_run(context), 0.01) != ""
    assert scene.instance(live.id).state == "proving"
    assert budget.set_cap(context, "day", None, "root") == "no cap any more"
    assert refusal(context, new_run(context), 0.01) == ""
    assert [(e.actor, e.data["before"], e.data["dollars"]) for e in scene.events("cap.set")] == [
        ("root", None, 10.0),
        ("root", 10.0, 3.0),
        ("root", 3.0, None),
    ]


@pytest.mark.parametrize(("scope", "dollars"), [("year", 1.0), ("user:", 1.0), ("day", -1.0), ("day", float("nan"))])
def test_no_such_cap(scene: Scene, scope: str, dollars: float) -> None:
    with pytest.raises(ValueError, match="cap"):
        budget.set_cap(scene.context, scope, dollars, "root")


def test_of_many_placements_at_once_no_more_than_the_cap_holds(
    scene: Scene, make_context: Callable[..., Context]
) -> None:
    """Each holds $0.468 of the day's $1.50: three may go, whatever the order, and five wait."""
    budget.set_cap(scene.context, "day", 1.5, "root")
    with writing(scene.context.sessions) as session:
        controller_id(session, scene.context)  # `up` made it, long before
    for n in range(8):
        new_offer(scene.context, f"o{n}", 0.36, machine_id=f"m{n}")
    runs = [new_run(scene.context, state="queued", offer_id=f"o{n}").id for n in range(8)]
    start = threading.Barrier(8)

    def race(run_id: str) -> str:
        context = make_context()
        held = take(context, Run, run_id, ("queued",))
        assert held is not None
        start.wait()
        return place(context, held[0]).reason

    with ThreadPoolExecutor(8) as pool:
        reasons = list(pool.map(race, runs))
    assert sum(reason == "" for reason in reasons) == 3
    assert all("the day's cap is $1.50" in reason for reason in reasons if reason)
    assert sum(i.reserved_dollars for i in scene.instances()) == pytest.approx(3 * 0.468)


# The credit.


@pytest.fixture
def billed(make_context: Callable[..., Context]) -> Context:
    """A controller with an account at a marketplace. No test here talks to it."""
    return make_context(vast_api_key=SecretStr("k" * 64))


def account(context: Context, credit: float | None, read_ms: int | None = NOW, **fields: Any) -> None:
    with context.sessions() as session:
        row = Account(provider="vast", credit_dollars=credit, read_ms=read_ms, **fields)
        session.merge(row)
        session.commit()


def test_credit_stops_launches_and_nothing_else(billed: Context) -> None:
    run = new_run(billed, provider="vast")
    assert "is not known yet" in refusal(billed, run, 1.0)
    account(billed, None, None, error="HTTP 500")
    assert "HTTP 500" in refusal(billed, run, 1.0)
    account(billed, 1.99)
    assert "is $1.99, under the floor of $2.00" in refusal(billed, run, 0.5)
    account(billed, 3.0)
    assert refusal(billed, run, 3.0) == ""
    assert "$3.00, of which $0.00 are held, and this needs $3.01" in refusal(billed, run, 3.01)
    # What other machines there may still cost is not there to be held twice.
    new_instance(billed, provider="vast", state="proving", rented_ms=NOW, accrued_ms=NOW, reserved_dollars=2.5)
    assert refusal(billed, run, 0.5) == ""
    assert "of which $2.50 are held" in refusal(billed, run, 0.6)
    assert refusal(billed, new_run(billed), 100.0) == ""  # this machine has no account


def test_old_news_of_the_credit_is_no_credit(billed: Context) -> None:
    account(billed, 50.0, NOW - 11 * MINUTE, error="Vast.ai does not answer")
    why = refusal(billed, new_run(billed, provider="vast"), 1.0)
    assert "was last read at" in why
    assert "Vast.ai does not answer" in why


def test_when_the_credit_runs_out(billed: Context) -> None:
    def forecast() -> budget.Forecast:
        with billed.sessions() as session:
            return budget.forecast(billed, session, NOW)

    assert forecast() == budget.Forecast(None)
    account(billed, 3.0)
    assert forecast() == budget.Forecast(None, "vast", 3.0, 0.0)
    for dollars_per_hour in (0.5, 1.0):
        new_instance(billed, provider="vast", state="proving", rented_ms=NOW, dollars_per_hour=dollars_per_hour)
    new_instance(billed, state="proving", rented_ms=NOW, dollars_per_hour=50.0)  # elsewhere
    found = forecast()
    assert (found.exhausted_ms, found.dollars_per_hour) == (NOW + 2 * HOUR_MS, 1.5)
    assert found.text == f"$3.00 of credit at vast run out at {budget.clock(NOW + 2 * HOUR_MS, NOW)}, at $1.5/h"
    account(billed, -1.0)
    assert forecast().exhausted_ms == NOW
    account(billed, 1e9)
    assert forecast().exhausted_ms is None


def test_the_time_of_day_has_its_date_on_other_days() -> None:
    assert budget.clock(NOW) == "20:26 UTC"
    assert budget.clock(NOW, NOW) == "20:26 UTC"
    assert budget.clock(NOW + DAY_MS, NOW) == "2026-05-29 20:26 UTC"


def test_a_run_waits_for_money_and_says_so(scene: Scene) -> None:
    """Nobody's machine is to blame, and the run is not lost: when there is room again it goes on."""
    budget.set_cap(scene.context, "day", 0.1, "root")
    scene.market.offer("o1")
    run_id = scene.request()
    for _ in range(3):
        prepare(run_id, 1)
        run = scene.run(run_id)
        assert (run.state, scene.market.sold) == ("queued", [])
        assert "the day's cap" in run.stage
        scene.clock.advance(30)
    budget.set_cap(scene.context, "day", 1.0, "root")
    prepare(run_id, 1)
    assert scene.run(run_id).state == "active"


def test_an_instance_without_a_rental_holds_what_was_reserved(scene: Scene) -> None:
    run = new_run(scene.context, max_dollars=1.0)
    new_instance(scene.context, run_id=run.id, state="renting", reserved_dollars=0.7)
    new_instance(scene.context, run_id=run.id, state="not_rented", reserved_dollars=0.7)
    with scene.context.sessions() as session:
        assert budget.left_dollars(scene.context, session, run) == pytest.approx(0.3)
        assert session.get(Instance, "none") is None
