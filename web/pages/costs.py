"""What was spent and on what, what is held, what the caps leave, how long the credit lasts, what the provider bills."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy import select
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from jobs.domain.market_models import Account, Cap
from jobs.domain.models import User
from jobs.market import budget, provider_names
from web import paging, scope, spending
from web.access import admin, viewer

blueprint = Blueprint("costs", __name__)
MOST_DOLLARS = 1_000_000.0
REASON = 500


@dataclass(frozen=True)
class Limit:
    """One cap with what counts against it: spent, and held by machines that run now. `words` say whose."""

    scope: str
    words: str
    cap: Cap | None
    spent: float | None = None
    held: float = 0.0


def limits(session: Session, now_ms: int) -> list[Limit]:
    """The caps on a run, a day and a month, set or not, then those on users."""
    caps = {cap.scope: cap for cap in session.scalars(select(Cap).order_by(Cap.scope))}
    rows = [Limit("run", "Each run, unless it asks for less", caps.pop("run", None))]
    for name, words in (("day", "All runs, today (UTC)"), ("month", "All runs, this month")):
        used = budget.committed(session, name, now_ms)
        rows.append(Limit(name, words, caps.pop(name, None), used.spent, used.held))
    for name, cap in caps.items():
        used = budget.committed(session, name, now_ms)
        rows.append(Limit(name, f"{name.removeprefix(budget.USER)}, this month", cap, used.spent, used.held))
    return rows


@blueprint.get("/costs")
@viewer
def page() -> str:
    return _show({})


def _show(problems: dict[str, str]) -> str:
    session, now = scope.db(), scope.now_ms()
    periods = spending.periods(now)
    period = paging.arg("period") if paging.arg("period") in periods else "month"
    group = paging.arg("by") if paging.arg("by") in spending.GROUPS else "day"
    words, since = periods[period]
    rows = spending.shares(session, group, since)
    return render_template(
        "costs.html",
        limits=limits(session, now),
        accounts=session.scalars(select(Account).order_by(Account.provider)).all(),
        forecast=budget.forecast(scope.context(), session, now),
        periods=periods,
        period=period,
        words=words,
        groups=spending.GROUPS,
        group=group,
        shares=rows,
        total=budget.spent_since(session, since),
        most=max((row.dollars for row in rows), default=0.0),
        bill=spending.bill(session, since),
        users=session.scalars(select(User.name).where(User.disabled.is_(False)).order_by(User.name)).all(),
        problems=problems,
        form=request.form,
        marketplaces=[name for name in provider_names(scope.context().settings) if name != "local"],
        floor=scope.context().settings.credit_floor_dollars,
    )


def _wanted() -> tuple[str, float | None, dict[str, str]]:
    """The scope and the dollars of the form (None: no cap), and what is wrong with them."""
    which, problems = request.form.get("scope", ""), {}
    if which not in ("run", "day", "month") and not (which.startswith("user:") and 5 < len(which) <= 69):
        problems["scope"] = "Choose what the cap is on."
    text = request.form.get("dollars", "").strip().removeprefix("$")
    if request.form.get("action") == "remove":
        return which, None, problems
    try:
        dollars = float(text)
    except ValueError:
        dollars = -1.0
    if not 0 <= dollars <= MOST_DOLLARS:
        problems["dollars"] = f"Give an amount in dollars, from 0 (nothing may be rented) to {MOST_DOLLARS:,.0f}."
    return which, dollars, problems


@blueprint.post("/costs/caps")
@admin
def set_cap() -> Response | tuple[str, int]:
    """A cap, or none. What lets more be spent than before asks for a reason."""
    which, dollars, problems = _wanted()
    before = scope.db().get(Cap, which)
    looser = before is not None and (dollars is None or dollars > before.dollars)
    reason = request.form.get("reason", "").strip()[:REASON]
    if looser and not reason:
        problems["reason"] = "This lets more be spent than now: say why."
    if problems:
        return _show(problems), 400
    means = budget.set_cap(scope.context(), which, dollars, scope.actor(), reason)
    flash(f"Set: {means}.")
    return redirect(url_for("costs.page"))
