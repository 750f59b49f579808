"""Costs: sums that agree with the ledger, the bill beside our account, caps that ask why."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from sqlalchemy import delete, func, select, update

from jobs.context import Context
from jobs.domain.db import writing
from jobs.domain.market_models import Account, Cap, Charge, LedgerDay
from jobs.domain.models import Event, Instance
from tests.web.site import Browser
from web import spending


def cap(context: Context, name: str) -> Cap | None:
    with context.sessions() as session:
        return session.get(Cap, name)


def test_the_parts_add_up_to_the_ledger(context: Context) -> None:
    now = context.now_ms()
    with context.sessions() as session:
        ours = LedgerDay.gpu_dollars + LedgerDay.disk_dollars + LedgerDay.traffic_dollars
        all_of_it = session.scalar(select(func.sum(func.coalesce(LedgerDay.billed_dollars, ours))))
        for group in spending.GROUPS:
            rows = spending.shares(session, group, now - 30 * spending.DAY_MS)
            assert sum(row.dollars for row in rows) == pytest.approx(all_of_it), group
            assert len({row.keys for row in rows}) == len(rows), group


def test_every_view_is_shown(signed_in: Callable[[str], Browser]) -> None:
    viewer = signed_in("viewer")
    for group, word in spending.GROUPS.items():
        for period in ("today", "week", "quarter", "nonsense"):
            assert f">{word}</th>" in viewer.get(f"/costs?by={group}&period={period}").text


def test_the_bill_is_set_against_our_account(context: Context, signed_in: Callable[[str], Browser]) -> None:
    page = signed_in("viewer").get("/costs").text
    assert re.search(r"The bill is .{1,60}\$0\.025.{1,20}higher", page)
    assert "not rented from here" in page
    with context.sessions() as session:
        known = spending.bill(session, context.now_ms() - 30 * spending.DAY_MS)
    assert (known.billed, [s[1] for s in known.strangers]) == (2, ["77"])
    assert known.theirs == pytest.approx(0.112 + 0.0849)


def test_a_month_is_never_less_than_its_day(signed_in: Callable[[str], Browser]) -> None:
    page = signed_in("viewer").get("/costs").text
    today, month = (float(x) for x in re.findall(r"<dt>(?:Today|This month)</dt><dd>(?:<[^>]+>)*\$([\d.]+)", page))
    assert 0 < today <= month


def test_credit_and_when_it_ends(signed_in: Callable[[str], Browser]) -> None:
    page = signed_in("viewer").get("/costs").text
    assert "$14.20" in page
    assert re.search(r"runs out <time[^>]*>in \d+ h</time>", page)


def test_empty_pages_say_what_to_do(context: Context, signed_in: Callable[[str], Browser]) -> None:
    with writing(context.sessions) as session:
        for table in (LedgerDay, Charge, Account, Cap):
            session.execute(delete(table))
        session.execute(update(Instance).values(billed_dollars=None))
    page = signed_in("operator").get("/costs").text
    assert "Nothing was spent this month." in page
    assert "has not been read yet" in page
    assert "no cap is set" in page


def test_a_lower_cap_needs_no_reason_and_a_higher_one_does(
    context: Context, signed_in: Callable[[str], Browser]
) -> None:
    admin = signed_in("admin")
    assert admin.post("/costs/caps", scope="day", dollars="20", action="set").status_code == 302
    assert cap(context, "day").dollars == 20  # type: ignore[union-attr]
    refused = admin.post("/costs/caps", scope="day", dollars="21.5", action="set")
    assert refused.status_code == 400
    assert "say why" in refused.text
    assert 'value="21.5"' in refused.text
    assert cap(context, "day").dollars == 20  # type: ignore[union-attr]
    admin.post("/costs/caps", scope="day", dollars="$21.5", action="set", reason="launch day")
    kept = cap(context, "day")
    assert kept is not None
    assert (kept.dollars, kept.set_by) == (21.5, "admin")
    with context.sessions() as session:
        told = session.scalars(select(Event).where(Event.kind == "cap.set").order_by(Event.id.desc())).first()
    assert told is not None
    assert "launch day" in told.reason


def test_a_cap_is_removed_with_a_reason_only(context: Context, signed_in: Callable[[str], Browser]) -> None:
    admin = signed_in("admin")
    assert admin.post("/costs/caps", scope="month", action="remove").status_code == 400
    assert cap(context, "month") is not None
    assert admin.post("/costs/caps", scope="month", action="remove", reason="paid by the customer").status_code == 302
    assert cap(context, "month") is None


def test_what_is_no_cap_is_refused(context: Context, signed_in: Callable[[str], Browser]) -> None:
    admin = signed_in("admin")
    for name in ("year", "user:", ""):
        assert admin.post("/costs/caps", scope=name, dollars="5", action="set", reason="so").status_code == 400, name
    for dollars in ("-1", "nan", "1e9", "", "inf", "five"):
        assert admin.post("/costs/caps", scope="day", dollars=dollars, action="set", reason="so").status_code == 400
    with context.sessions() as session:
        caps = {c.scope: c.dollars for c in session.scalars(select(Cap))}
    assert caps == {"run": 5.0, "day": 25.0, "month": 400.0, "user:operator": 120.0}


def test_only_an_admin_sees_the_form(signed_in: Callable[[str], Browser]) -> None:
    assert "Set the cap" not in signed_in("operator").get("/costs").text
    assert "Set the cap" in signed_in("admin").get("/costs").text
    assert signed_in("operator").post("/costs/caps", scope="day", dollars="1", action="set").status_code == 403
