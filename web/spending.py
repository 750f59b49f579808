"""What was spent and on what, from the ledger (`jobs.domain.market_models.LedgerDay`): sums for the page of costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Subquery, func, select
from sqlalchemy.orm import Session, load_only

from jobs.domain import instances
from jobs.domain.market_models import Charge, LedgerDay, Machine
from jobs.domain.models import Controller, Instance, Run
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
    "run": (Instance.run_id,),
    "machine": (Instance.provider, Instance.machine_id, Machine.description),
    "gpu": (Machine.description,),
    "user": (Run.created_by,),
    "provider": (Instance.provider,),
}


def shares(session: Session, group: str, since_ms: int) -> list[Share]:
    """The dearest of a group since a day (00:00 UTC), dearest first; days come newest first."""
    if group == "day":
        return _days(session, since_ms)
    keys = _KEYS[group]
    one = _rentals(since_ms)
    total = func.sum(one.c.total)
    query = (
        select(*keys, total, func.sum(one.c.gpu), func.sum(one.c.disk), func.sum(one.c.traffic), func.count())
        .select_from(one)
        .join(Instance, Instance.id == one.c.instance_id)
        .group_by(*keys)
        .order_by(total.desc())
        .limit(SHOWN)
    )
    if group in ("machine", "gpu"):
        at = (Machine.provider == Instance.provider) & (Machine.machine_id == Instance.machine_id)
        query = query.outerjoin(Machine, at)
    if group == "user":
        query = query.outerjoin(Run, Run.id == Instance.run_id)
    n = len(keys)
    return [Share(tuple(row[:n]), *row[n:]) for row in session.execute(query)]


def _days(session: Session, since_ms: int) -> list[Share]:
    rows = session.execute(
        select(
            LedgerDay.day_ms,
            func.sum(budget.ledger_dollars()),
            func.sum(LedgerDay.gpu_dollars),
            func.sum(LedgerDay.disk_dollars),
            func.sum(LedgerDay.traffic_dollars),
            func.count(),
        )
        .where(LedgerDay.day_ms >= since_ms)
        .group_by(LedgerDay.day_ms)
        .order_by(LedgerDay.day_ms.desc())
        .limit(SHOWN)
    )
    return [Share((day,), total, gpu, disk, traffic, count) for day, total, gpu, disk, traffic, count in rows]


def _rentals(since_ms: int) -> Subquery:
    """Each rental's part of the ledger since a day, before anything wide is joined."""
    return (
        select(
            LedgerDay.instance_id,
            func.sum(budget.ledger_dollars()).label("total"),
            func.sum(LedgerDay.gpu_dollars).label("gpu"),
            func.sum(LedgerDay.disk_dollars).label("disk"),
            func.sum(LedgerDay.traffic_dollars).label("traffic"),
        )
        .where(LedgerDay.day_ms >= since_ms)
        .group_by(LedgerDay.instance_id)
        .subquery()
    )


@dataclass(frozen=True)
class Difference:
    """A rental of which our account and the provider's bill are both complete, in dollars."""

    instance: Instance
    ours: float
    theirs: float


@dataclass(frozen=True)
class Bill:
    """Our account against the provider's, for the days since one whose bill is complete."""

    ours: float
    theirs: float
    billed: int
    rows: Sequence[Difference]
    """The largest differences first."""
    strangers: Sequence[tuple[str, str, str, float]]
    """(provider, its id, label, dollars) of charges for machines that we did not rent."""


def bill(session: Session, since_ms: int) -> Bill:
    ours = func.sum(LedgerDay.gpu_dollars + LedgerDay.disk_dollars + LedgerDay.traffic_dollars)
    theirs = func.sum(LedgerDay.billed_dollars)
    known = (LedgerDay.day_ms >= since_ms, LedgerDay.billed_dollars.is_not(None))
    sums = session.execute(select(ours, theirs, func.count(func.distinct(LedgerDay.instance_id))).where(*known)).one()
    largest = session.execute(
        select(LedgerDay.instance_id, ours, theirs)
        .where(*known)
        .group_by(LedgerDay.instance_id)
        .order_by(func.abs(theirs - ours).desc())
        .limit(20)
    ).all()
    columns = (Instance.provider, Instance.machine_id, Instance.run_id, Instance.ended_ms)
    found = select(Instance).options(load_only(*columns)).where(Instance.id.in_([row[0] for row in largest]))
    rented = {instance.id: instance for instance in session.scalars(found)}
    return Bill(
        sums[0] or 0.0,
        sums[1] or 0.0,
        sums[2],
        [Difference(rented[key], mine or 0.0, yours or 0.0) for key, mine, yours in largest],
        _strangers(session, since_ms),
    )


def _strangers(session: Session, since_ms: int) -> list[tuple[str, str, str, float]]:
    """Charges without our label for machines that no rental of ours is known to have been."""
    label = instances.label_of(session.scalar(select(Controller.id)) or "", "")
    same = (Instance.provider_id == Charge.provider_id, Instance.provider == Charge.provider)
    billed = (
        select(Charge.provider, Charge.provider_id, func.max(Charge.label), func.sum(Charge.dollars))
        .where(Charge.begin_ms >= since_ms, ~Charge.label.startswith(label), ~select(Instance.id).where(*same).exists())
        .group_by(Charge.provider, Charge.provider_id)
        .order_by(func.sum(Charge.dollars).desc())
        .limit(20)
    )
    return [(provider, key, label, dollars) for provider, key, label, dollars in session.execute(billed)]


def periods(now_ms: int) -> dict[str, tuple[str, int]]:
    """(words, first day) of what the page can be asked for."""
    today = budget.begins_ms("day", now_ms)
    return {
        "month": ("This month", budget.begins_ms("month", now_ms)),
        "today": ("Today", today),
        "week": ("7 days", today - 6 * DAY_MS),
        "quarter": ("90 days", today - 89 * DAY_MS),
    }
