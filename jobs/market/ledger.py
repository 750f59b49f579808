"""What was spent, by rental and day: our own account beside the provider's bill, and lines of it that are not ours."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from jobs.domain.market_models import Charge, LedgerDay
from jobs.domain.models import Controller, Instance
from jobs.market.accrual import DAY_MS
from jobs.market.billing import by_days

OURS, ORPHAN, STRANGER = "ours", "orphan", "stranger"


@dataclass(frozen=True)
class Line:
    """One rental on one day (UTC), in dollars.

    `accrued` is our own account; `billed` the bill as far as it is known, None where it says nothing yet; `complete`:
    the bill is, and counts. `owner`: ours | orphan (our label on a rental that we never wrote down) | stranger.
    """

    day_ms: int
    provider: str
    provider_id: str
    label: str
    owner: str
    accrued: float = 0.0
    billed: float | None = None
    complete: bool = False
    instance_id: str | None = None
    run_id: str | None = None

    @property
    def dollars(self) -> float:
        """What counts."""
        return (self.billed or 0.0) if self.complete or self.owner != OURS else self.accrued

    @property
    def difference(self) -> float:
        """What the bill says over our own account; 0 until it is complete."""
        return (self.billed or 0.0) - self.accrued if self.complete else 0.0


@dataclass(frozen=True)
class Totals:
    """Dollars: `ours` is what counts, `billed` of it by complete bills; `difference` is bill less our own account."""

    ours: float
    accrued: float
    billed: float
    difference: float
    orphans: float
    strangers: float


def read(session: Session, begin_ms: int, end_ms: int) -> list[Line]:
    """The lines of the days that begin in that time, by day, provider and id."""
    query = select(LedgerDay, Instance).join(Instance, Instance.id == LedgerDay.instance_id)
    days = session.execute(query.where(LedgerDay.day_ms >= begin_ms, LedgerDay.day_ms < end_ms)).all()
    billed, labels = _bills(session, begin_ms, end_ms)
    lines = []
    for day, instance in days:
        so_far = billed.pop(
            (instance.provider, instance.provider_id or labels.get(instance.label, ""), day.day_ms), None
        )
        complete = day.billed_dollars is not None
        accrued = day.gpu_dollars + day.disk_dollars + day.traffic_dollars
        lines.append(
            Line(
                day.day_ms,
                instance.provider,
                instance.provider_id or "",
                instance.label,
                OURS,
                accrued,
                day.billed_dollars if complete else so_far,
                complete,
                instance.id,
                instance.run_id,
            )
        )
    lines += _others(session, billed, {provider_id: label for label, provider_id in labels.items()})
    return sorted(lines, key=lambda line: (line.day_ms, line.provider, line.provider_id))


Bills = dict[tuple[str, str, int], float]


def _bills(session: Session, begin_ms: int, end_ms: int) -> tuple[Bills, dict[str, str]]:
    """(dollars by provider, its id and day; the id of each label)."""
    billed: Bills = defaultdict(float)
    labels = {}
    for charge in session.scalars(select(Charge).where(Charge.end_ms > begin_ms, Charge.begin_ms < end_ms)):
        labels[charge.label] = charge.provider_id
        for day_ms, dollars in by_days(charge):
            if begin_ms <= day_ms < end_ms:
                billed[charge.provider, charge.provider_id, day_ms] += dollars
    return billed, labels


def _others(session: Session, billed: Bills, label_of: dict[str, str]) -> list[Line]:
    """What is left of the bill: days of our rentals that our own account knows nothing of, orphans and strangers."""
    prefix = f"provefleet:{session.scalar(select(Controller.id))}:"
    ids = {provider_id for _, provider_id, _ in billed}
    known = select(Instance).where(Instance.provider_id.in_(ids))
    ours = {(instance.provider, instance.provider_id): instance for instance in session.scalars(known)}
    lines = []
    for (name, provider_id, day_ms), dollars in billed.items():
        label, instance = label_of.get(provider_id, ""), ours.get((name, provider_id))
        owner = OURS if instance else ORPHAN if label.startswith(prefix) else STRANGER
        mine = (instance.id, instance.run_id) if instance else (None, None)
        lines.append(Line(day_ms, name, provider_id, label, owner, 0.0, dollars, False, *mine))
    return lines


def totals(lines: list[Line]) -> Totals:
    """The lines added up."""
    ours = [line for line in lines if line.owner == OURS]
    return Totals(
        sum(line.dollars for line in ours),
        sum(line.accrued for line in ours),
        sum(line.billed or 0.0 for line in ours if line.complete),
        sum(line.difference for line in ours),
        sum(line.dollars for line in lines if line.owner == ORPHAN),
        sum(line.dollars for line in lines if line.owner == STRANGER),
    )


def recent(session: Session, now_ms: int, days: int) -> list[Line]:
    """The lines of the last `days` days (UTC), today included."""
    tomorrow = now_ms - now_ms % DAY_MS + DAY_MS
    return read(session, tomorrow - days * DAY_MS, tomorrow)


def text(lines: list[Line]) -> str:
    """The lines as a table, and under it what they come to."""
    rows = [f"{'day':<10} {'whose':<8} {'rental':<24} {'ours':>10} {'bill':>10} {'bill - ours':>12}"]
    for line in lines:
        day = f"{datetime.fromtimestamp(line.day_ms / 1000, UTC):%Y-%m-%d}"
        billed = "-" if line.billed is None else f"{line.billed:.4f}" + ("" if line.complete else " *")
        gap = f"{line.difference:+.4f}" if line.complete else "-"
        name = f"{line.provider} {line.provider_id}"
        rows.append(f"{day} {line.owner:<8} {name:<24} {line.accrued:>10.4f} {billed:>10} {gap:>12}")
    sums = totals(lines)
    rows.append(
        f"spent ${sums.ours:,.4f}, of which ${sums.billed:,.4f} by complete bills "
        f"({sums.difference:+,.4f} against our own account); "
        f"orphans ${sums.orphans:,.4f}; strangers ${sums.strangers:,.4f}"
    )
    if any(line.billed is not None and not line.complete for line in lines):
        rows.append("* as far as the bill is written yet")
    return "\n".join(rows)
