"""What is running, what it costs, what broke: the first glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from flask import Blueprint, render_template
from markupsafe import Markup
from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer, joinedload

from jobs.domain.market_models import Account, Offer
from jobs.domain.models import Input, Instance, Proof, Run
from jobs.market import budget
from jobs.market.accrual import spent_sql
from web import charts, memory, needs, queries, scope
from web import format as f
from web.access import viewer

blueprint = Blueprint("overview", __name__)
HOUR_MS = 3_600_000
SHOWN = 12


@dataclass(frozen=True)
class Hours:
    """The last 24 hours of verified proofs, and what the machines that made them cost."""

    proofs: int
    dollars_per_proof: float | None
    chart: Markup


@blueprint.get("/")
@viewer
def page() -> str:
    session, now = scope.db(), scope.now_ms()
    live = session.scalars(
        select(Instance)
        .options(
            defer(Instance.agent_manifest),
            joinedload(Instance.run).options(defer(Run.result), joinedload(Run.zkey).load_only(Input.name)),
        )
        .where(Instance.state.in_(queries.LIVE))
        .order_by(Instance.created_ms.desc())
        .limit(200)
    ).all()
    recent = session.scalars(queries.with_parts(select(Run)).order_by(Run.created_ms.desc()).limit(10)).all()
    waiting = session.scalar(select(func.count()).select_from(Run).where(Run.state == "queued")) or 0
    return render_template(
        "overview.html",
        live=live,
        counts=Counter(instance.state for instance in live),
        waiting=waiting,
        machines=memory.known(session, ((i.provider, i.machine_id) for i in live), now),
        recent=recent,
        needs=needs.all_of(scope.context(), session, live, now),
        accounts=session.scalars(select(Account).order_by(Account.provider)).all(),
        forecast=budget.forecast(scope.context(), session, now),
        day=_day(session, now),
        offers=session.scalar(select(func.count()).select_from(Offer).where(Offer.gone_ms.is_(None))) or 0,
    )


def _day(session: Session, now: int) -> Hours:
    first = now - now % HOUR_MS - 23 * HOUR_MS
    hour = (Proof.received_ms - first) // HOUR_MS
    rows: Sequence[tuple[int, int]] = session.execute(
        select(hour, func.count())
        .join(Instance, Proof.instance_id == Instance.id)
        .where(Instance.created_ms >= first - queries.DAY_MS, Proof.verdict == "valid", Proof.received_ms >= first)
        .group_by(hour)
    ).all()  # type: ignore[assignment]
    counts = [0] * 24
    for at, count in rows:
        if 0 <= at < 24:
            counts[at] = count
    dollars = session.scalar(
        select(func.sum(spent_sql(now))).where(Instance.created_ms >= first, Instance.rented_ms.is_not(None))
    )
    proofs = sum(counts)
    labels = [f.utc(first + i * HOUR_MS).strftime("%H:00") for i in range(24)]
    return Hours(
        proofs, (dollars or 0.0) / proofs if proofs else None, charts.hourly(counts, labels, "verified proofs")
    )
