"""Diagnoses as the pages show them: reports, and failures that read alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer, joinedload

from jobs.diagnosis.report import Report
from jobs.diagnosis.signatures import digest
from jobs.domain.diagnosis_models import Diagnosis
from jobs.domain.models import Chunk, Instance, Run


@dataclass(frozen=True)
class Shown:
    """One instance's report. `streams`: those that the archive holds, so that their lines can be linked to.

    `outdated`: older rules said so. `alike`: how many instances failed in the same way, this one included.
    """

    row: Diagnosis
    report: Report
    streams: frozenset[str]
    outdated: bool
    alike: int


def of_run(session: Session, run: Run) -> list[Shown]:
    """The newest machine's first."""
    rows = session.scalars(
        select(Diagnosis).where(Diagnosis.run_id == run.id).order_by(Diagnosis.created_ms.desc())
    ).all()
    return [_shown(session, row) for row in rows]


def _shown(session: Session, row: Diagnosis) -> Shown:
    streams = session.scalars(select(Chunk.stream).where(Chunk.instance_id == row.instance_id).distinct())
    alike = session.scalar(select(func.count()).where(Diagnosis.fingerprint == row.fingerprint)) or 0
    return Shown(row, Report.from_json(row.report), frozenset(streams), row.rules != digest(), alike)


@dataclass(frozen=True)
class Cluster:
    """Failures of one fingerprint: their newest report speaks for all."""

    fingerprint: str
    cause: str
    report: Report
    newest: Instance
    count: int
    machines: int
    images: Sequence[str]
    gpus: Sequence[str]
    first_ms: int
    last_ms: int


def clusters(session: Session, since_ms: int, limit: int) -> list[Cluster]:
    """Groups of failures since `since_ms`, the newest first."""
    group = (
        select(
            Diagnosis.fingerprint,
            func.count().label("count"),
            func.min(Diagnosis.created_ms).label("first"),
            func.max(Diagnosis.created_ms).label("last"),
        )
        .where(Diagnosis.outcome == "failed", Diagnosis.created_ms >= since_ms)
        .group_by(Diagnosis.fingerprint)
        .order_by(func.max(Diagnosis.created_ms).desc())
        .limit(limit)
    )
    return [_cluster(session, *row) for row in session.execute(group)]


def _cluster(session: Session, fingerprint: str, count: int, first_ms: int, last_ms: int) -> Cluster:
    same = select(Diagnosis).where(Diagnosis.fingerprint == fingerprint).order_by(Diagnosis.created_ms.desc())
    parts = defer(Diagnosis.report), joinedload(Diagnosis.instance).defer(Instance.agent_manifest)
    rows = session.scalars(same.options(*parts).limit(200)).all()
    instances = [row.instance for row in rows]
    return Cluster(
        fingerprint,
        rows[0].cause,
        Report.from_json(rows[0].report),  # the one that is read
        instances[0],
        count,
        len({(i.provider, i.machine_id) for i in instances}),
        _distinct(i.image_ran for i in instances),
        _distinct(next(iter(i.gpu_names), "no GPU") for i in instances),
        first_ms,
        last_ms,
    )


def _distinct(values: Iterable[str]) -> list[str]:
    return sorted({str(value) for value in values if value})
