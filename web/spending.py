"""What was spent and on what, from the ledger (`jobs.domain.models.LedgerDay`): sums for the page of costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Float, cast, func, select
from sqlalchemy.orm import Session, load_only

from jobs.domain.models import Charge, Instance, LedgerDay, Machine, Run
from jobs.domain.states import ENDED
from jobs.market import budget
from jobs.market.accrual import DAY_MS

SHOWN = 50
GROUPS = {"day": "Day", "run": "Run", "machine": "Machine", "gpu": "GPU", "user": "User", "provider": "Provider"}


@dataclass(frozen=True)
class Share:
    """What one day, run, machine, kind of machine or user cost. `keys` say which; GPU, disk and traffic are ours."""

    keys: tuple[Any, ...]
    dollars: float
    gpu: float
    disk: float
    traffic: float
    rentals: int


_KEYS: dict[str, tuple[Any, ...]] = {
    "day": (LedgerDay.day_ms,),
    "run": (Instance.run_id,),
    "machine": (Instance.provider, Instance.machine_id, Machine.description),
    "gpu": (Machine.description,),
    "user": (Run.created_by,),
    "provider": (Instance.provider,),
}


def shares(session: Session, group: str, since_ms: int) -> list[Share]:
    """The dearest of a group since a day (00:00 UTC), dearest first; days come newest first."""
    keys = _KEYS[group]
    total = func.sum(budget.ledger_dollars())
    query = (
        select(
            *keys,
            total,
            func.sum(LedgerDay.gpu_dollars),
            func.sum(LedgerDay.disk_dollars),
            func.sum(LedgerDay.traffic_dollars),
            func.count(func.distinct(LedgerDay.instance_id)),
        )
        .select_from(LedgerDay)
        .join(Instance, Instance.id == LedgerDay.instance_id)
        .where(LedgerDay.day_ms >= since_ms)
        .group_by(*keys)
        .order_by(LedgerDay.day_ms.desc() if group == "day" else total.desc())
        .limit(SHOWN)
    )
    if group in ("machine", "gpu"):
        at = (Machine.provider == Instance.provider) & (Machine.machine_id == Instance.machine_id)
        query = query.outerjoin(Machine, at)
    if group == "user":
        query = query.outerjoin(Run, Run.id == Instance.run_id)
    rows = session.execute(query).all()
    n = len(keys)
    return [Share(tuple(row[:n]), *row[n:]) for row in rows]


@dataclass(frozen=True)
class Bill:
    """Our account against the provider's, for the rentals since a day whose bill is complete."""

    ours: float
    theirs: float
    billed: int
    waiting: int
    rows: Sequence[Instance]
    """The largest differences first."""
    strangers: Sequence[tuple[str, str, str, float]]
    """(provider, its id, label, dollars) of charges for machines that we did not rent."""


def bill(session: Session, since_ms: int) -> Bill:
    ended = (Instance.state.in_(ENDED), Instance.ended_ms >= since_ms, Instance.rented_ms.is_not(None))
    known = Instance.billed_dollars.is_not(None)
    ours, theirs, count = session.execute(
        select(func.sum(Instance.spent_dollars), func.sum(Instance.billed_dollars), func.count()).where(*ended, known)
    ).one()
    gap = func.abs(cast(Instance.billed_dollars, Float) - Instance.spent_dollars)
    columns = (
        Instance.provider,
        Instance.provider_id,
        Instance.machine_id,
        Instance.run_id,
        Instance.spent_dollars,
        Instance.billed_dollars,
        Instance.ended_ms,
    )
    rows = session.scalars(
        select(Instance).options(load_only(*columns)).where(*ended, known).order_by(gap.desc()).limit(20)
    ).all()
    billing = select(Charge.provider).distinct()
    waiting = session.scalar(
        select(func.count()).select_from(Instance).where(*ended, ~known, Instance.provider.in_(billing))
    )
    same = (Instance.provider == Charge.provider) & (Instance.provider_id == Charge.provider_id)
    strangers = session.execute(
        select(Charge.provider, Charge.provider_id, func.max(Charge.label), func.sum(Charge.dollars))
        .outerjoin(Instance, same)
        .where(Charge.begin_ms >= since_ms, Instance.id.is_(None))
        .group_by(Charge.provider, Charge.provider_id)
        .order_by(func.sum(Charge.dollars).desc())
        .limit(20)
    )
    foreign = [(provider, key, label, dollars) for provider, key, label, dollars in strangers]
    return Bill(ours or 0.0, theirs or 0.0, count, waiting or 0, rows, foreign)


def periods(now_ms: int) -> dict[str, tuple[str, int]]:
    """(words, first day) of what the page can be asked for."""
    today = budget.begins_ms("day", now_ms)
    return {
        "month": ("This month", budget.begins_ms("month", now_ms)),
        "today": ("Today", today),
        "week": ("7 days", today - 6 * DAY_MS),
        "quarter": ("90 days", today - 89 * DAY_MS),
    }
