"""Reads that several pages share. Each is a fixed number of statements, by index, whatever the archive holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session, defer, joinedload, selectinload

from jobs.domain.market_models import Machine
from jobs.domain.models import Chunk, Input, Instance, Proof, Run
from jobs.domain.states import BILLABLE, RENTING
from jobs.market import budget
from jobs.market.accrual import open_sql, spent

LIVE = (RENTING, *BILLABLE)
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@dataclass(frozen=True)
class Spend:
    """Dollars since 00:00 UTC, what the machines rented now may still cost, and what they cost an hour.

    `unbooked`: of today's, what the ledger does not have yet; it is written each minute.
    """

    today: float
    reserved: float
    per_hour: float
    unbooked: float


def spend(session: Session, now_ms: int) -> Spend:
    per_hour, uncounted = func.sum(Instance.dollars_per_hour), func.sum(open_sql(now_ms))
    sums = select(func.sum(Instance.reserved_dollars), per_hour, uncounted)
    live = session.execute(sums.where(Instance.state.in_(BILLABLE), Instance.rented_ms.is_not(None))).one()
    today = budget.spent_since(session, budget.begins_ms("day", now_ms))
    unbooked = live[2] or 0.0
    return Spend(today + unbooked, live[0] or 0.0, live[1] or 0.0, unbooked)


def cost(instances: Iterable[Instance], now_ms: int) -> float:
    return sum(spent(instance, now_ms) for instance in instances)


def with_parts(query: Select[Run]) -> Select[Run]:
    """Runs with their key's name and their instances, but without the parts that can be megabytes."""
    return query.options(
        joinedload(Run.zkey).load_only(Input.name, Input.circuit, Input.state, Input.facts),
        selectinload(Run.instances).options(defer(Instance.agent_manifest)),
    )


def what(run: Run) -> str:
    """What a run proves, in a few words: the circuit, or the name of the key."""
    if run.inputs.get("circuit"):
        return str(run.inputs["circuit"])
    return run.zkey.name if run.zkey else "own key"


@dataclass(frozen=True)
class Measured:
    """What a run measured, None where it did not (yet), or where an older version did not keep it."""

    proofs_per_hour: float | None = None
    low: float | None = None
    high: float | None = None
    dollars_per_proof: float | None = None


def measured(run: Run) -> Measured:
    result = run.result or {}
    rate = result.get("proofs_per_hour") or None
    low, high = result.get("proofs_per_hour_low"), result.get("proofs_per_hour_high")
    return Measured(rate, low, high, result.get("dollars_per_proof"))


@dataclass(frozen=True)
class StreamSummary:
    """One archived stream of one instance."""

    instance_id: str
    stream: str
    chunks: int
    lines: int
    raw_bytes: int
    first_ms: int
    last_ms: int
    last_seq: int

    @property
    def missing_chunks(self) -> int:
        return self.last_seq + 1 - self.chunks


def streams_of(session: Session, instance_ids: Sequence[str]) -> list[StreamSummary]:
    if not instance_ids:
        return []
    rows = session.execute(
        select(
            Chunk.instance_id,
            Chunk.stream,
            func.count(),
            func.max(Chunk.first_line + Chunk.lines) - 1,
            func.sum(Chunk.raw_bytes),
            func.min(Chunk.t_first_ms),
            func.max(Chunk.t_last_ms),
            func.max(Chunk.seq),
        )
        .where(Chunk.instance_id.in_(instance_ids))
        .group_by(Chunk.instance_id, Chunk.stream)
        .order_by(Chunk.instance_id, Chunk.stream)
    )
    return [StreamSummary(*row) for row in rows]


def proof_counts(session: Session, run_id: str) -> dict[tuple[int, str], int]:
    """How many proofs of a run have which verdict, by (round, verdict)."""
    rows = session.execute(
        select(Proof.round, Proof.verdict, func.count())
        .where(Proof.run_id == run_id)
        .group_by(Proof.round, Proof.verdict)
    )
    return {(round_, verdict): count for round_, verdict, count in rows}


def joules_per_proof(session: Session, run_id: str) -> float | None:
    """The mean over the valid proofs whose energy is known; None where none is."""
    return session.scalar(select(func.avg(Proof.joules)).where(Proof.run_id == run_id, Proof.verdict == "valid"))


def starts_with(
    column: InstrumentedAttribute[str] | InstrumentedAttribute[str | None], text: str
) -> ColumnElement[bool]:
    """`column` starts with `text`, as a range, so that an index serves it."""
    return and_(column >= text, column < text + "\uffff")


@dataclass(frozen=True)
class Found:
    runs: Sequence[Run]
    instances: Sequence[Instance]
    machines: Sequence[Machine]

    @property
    def count(self) -> int:
        return len(self.runs) + len(self.instances) + len(self.machines)


def search(session: Session, text: str, limit: int = 20) -> Found:
    """Runs and instances whose id starts with `text`, machines whose number or description holds it."""
    runs = session.scalars(with_parts(select(Run).where(starts_with(Run.id, text.lower()))).limit(limit)).all()
    instances = session.scalars(
        select(Instance)
        .options(defer(Instance.agent_manifest), joinedload(Instance.run).load_only(Run.id, Run.state))
        .where(or_(starts_with(Instance.id, text.lower()), Instance.machine_id == text, Instance.provider_id == text))
        .order_by(Instance.created_ms.desc())
        .limit(limit)
    ).all()
    machines = session.scalars(
        select(Machine)
        .where(or_(starts_with(Machine.machine_id, text), Machine.description.icontains(text, autoescape=True)))
        .limit(limit)
    ).all()
    return Found(runs, instances, machines)


def load_instance(session: Session, instance_id: str) -> Instance | None:
    return session.scalar(
        select(Instance)
        .options(defer(Instance.agent_manifest), joinedload(Instance.run).joinedload(Run.zkey).load_only(Input.name))
        .where(Instance.id == instance_id)
    )


def load_run(session: Session, run_id: str) -> Run | None:
    return session.scalar(with_parts(select(Run).where(Run.id == run_id)))
