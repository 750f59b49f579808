"""What is known of machines, for the pages that show it: marks, measured rates, rentals, who uses them now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, exists, func, not_, select
from sqlalchemy.orm import Session, defer, joinedload

from jobs.domain.market_models import Machine, Mark, Measurement, Offer
from jobs.domain.models import Instance, Run
from jobs.market import reputation
from web import queries
from web.status import Status, status

Pair = tuple[str, str]
SHOWN = 100


@dataclass(frozen=True)
class Known:
    """One machine, and the marks that count against it now, worst first."""

    machine: Machine
    marks: Sequence[Mark] = ()

    @property
    def description(self) -> str:
        return self.machine.description

    @property
    def status(self) -> Status:
        return mark_status(self.machine.measured_ms, self.marks)


def mark_status(measured_ms: int | None, marks: Sequence[Mark]) -> Status:
    """What a machine is called: its worst mark; good when it was measured and has none."""
    if not marks:
        return status("mark", "good" if measured_ms is not None else "")
    more = f"+{len(marks) - 1}" if len(marks) > 1 else ""
    return status("mark", marks[0].kind, more)


def known(session: Session, pairs: Iterable[Pair], now_ms: int) -> dict[Pair, Known]:
    """Machines by (provider, machine id), in two statements."""
    wanted = {pair for pair in pairs if pair[1]}
    if not wanted:
        return {}
    rows = session.scalars(select(Machine).where(Machine.machine_id.in_({m for _, m in wanted})))
    machines = {(row.provider, row.machine_id): row for row in rows}
    marks = reputation.marks_of(session, list(machines), now_ms)
    return {pair: Known(machine, marks.get(pair, ())) for pair, machine in machines.items()}


def marked(kind: str, now_ms: int) -> ColumnElement[bool]:
    """The filter of the list of machines: a kind of mark, `good`, `new` (never measured), or `any` mark."""
    counts = and_(
        Mark.provider == Machine.provider,
        Mark.machine_id == Machine.machine_id,
        Mark.fades_ms > now_ms,
        Mark.withdrawn_ms.is_(None),
    )
    if kind in ("good", "new"):
        measured = Machine.measured_ms.is_not(None) if kind == "good" else Machine.measured_ms.is_(None)
        return and_(measured, not_(exists().where(counts)))
    return exists().where(counts) if kind == "any" else exists().where(counts, Mark.kind == kind)


def rentals_of(session: Session, pairs: Iterable[Pair]) -> dict[Pair, tuple[int, str]]:
    """How often each machine was rented, and its newest instance, whose evidence can be read."""
    ids = [machine_id for _, machine_id in pairs]
    if not ids:
        return {}
    newest = (
        select(
            Instance.provider, Instance.machine_id, func.count().label("n"), func.max(Instance.created_ms).label("at")
        )
        .where(Instance.machine_id.in_(ids))
        .group_by(Instance.provider, Instance.machine_id)
        .subquery()
    )
    found = session.execute(
        select(newest.c.provider, newest.c.machine_id, newest.c.n, Instance.id).join(
            Instance,
            (Instance.machine_id == newest.c.machine_id)
            & (Instance.provider == newest.c.provider)
            & (Instance.created_ms == newest.c.at),
        )
    )
    return {(provider, machine): (count, instance) for provider, machine, count, instance in found}


@dataclass(frozen=True)
class Past:
    """All of one machine's history that its page shows, newest first."""

    active: Sequence[Mark]
    over: Sequence[Mark]
    measurements: Sequence[Measurement]
    rentals: Sequence[Instance]
    rented: int
    live: Sequence[Instance]
    offers: Sequence[Offer]
    host_machines: int
    host_marked: int


def past(session: Session, machine: Machine, now_ms: int) -> Past:
    """Reads by the machine's key only: a fixed number of statements."""
    pair = (machine.provider, machine.machine_id)
    marks = session.scalars(
        select(Mark)
        .where(Mark.provider == pair[0], Mark.machine_id == pair[1])
        .order_by(Mark.at_ms.desc(), Mark.id.desc())
        .limit(SHOWN)
    ).all()
    active = reputation.marks_of(session, [pair], now_ms).get(pair, [])
    counting = {mark.id for mark in active}
    here = (Instance.provider == pair[0], Instance.machine_id == pair[1])
    rentals = session.scalars(
        select(Instance)
        .options(defer(Instance.agent_manifest), joinedload(Instance.run).joinedload(Run.zkey))
        .where(*here)
        .order_by(Instance.created_ms.desc())
        .limit(SHOWN)
    ).all()
    host = and_(Machine.provider == pair[0], Machine.host_id == machine.host_id)
    others = marked_host = 0
    if machine.host_id:
        others = session.scalar(select(func.count()).select_from(Machine).where(host)) or 0
        marked_host = session.scalar(select(func.count()).select_from(Machine).where(host, marked("any", now_ms))) or 0
    return Past(
        active=active,
        over=[mark for mark in marks if mark.id not in counting],
        measurements=session.scalars(
            select(Measurement)
            .where(Measurement.provider == pair[0], Measurement.machine_id == pair[1])
            .order_by(Measurement.at_ms.desc())
            .limit(SHOWN)
        ).all(),
        rentals=rentals,
        rented=session.scalar(select(func.count()).select_from(Instance).where(*here)) or 0,
        live=[row for row in rentals if row.state in queries.LIVE],
        offers=session.scalars(
            select(Offer).where(Offer.provider == pair[0], Offer.machine_id == pair[1], Offer.gone_ms.is_(None))
        ).all(),
        host_machines=others,
        host_marked=marked_host,
    )
