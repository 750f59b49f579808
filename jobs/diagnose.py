"""`diagnose`: why a run ended badly, from its archived logs and from what SQL knows; kept, and shown ever after.

Runs when an instance's evidence is sealed and its run ended badly, and again by cron for what was missed. It holds up
nothing: the machine may be gone before, and a diagnosis that fails leaves the evidence as it is.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from jobs import payloads
from jobs.context import Context, current
from jobs.diagnosis.case import Case, table_of
from jobs.diagnosis.engine import diagnose as conclude
from jobs.diagnosis.fingerprint import fingerprint
from jobs.diagnosis.load import lines_of, rows_of
from jobs.diagnosis.report import Report
from jobs.domain import archive
from jobs.domain.archive_models import Archive
from jobs.domain.db import writing
from jobs.domain.diagnosis_models import Diagnosis
from jobs.domain.models import Artifact, Event, Instance, Run
from jobs.domain.states import SEALING
from jobs.provider_logs import CONTAINER, DAEMON
from logs.errors import NoSuchObject, TooLarge
from logs.reader import StreamReader
from logs.redact import Redactor

log = logging.getLogger(__name__)

BAD = ("broken", "failed", "slow")
MAX_STREAM_BYTES = 256 << 20
AT_ONCE = 100
HOUR_MS = 3600_000
_STAGE_OF = {
    "renting": "loading",
    "loading": "loading",
    "fetching": "params",
    "benchmarking": "benchmark",
    "ready": "benchmark",
    "proving": "serve",
    "serving": "serve",
}


def diagnose(instance_id: str, attempt: int) -> None:
    """The RQ job of one instance; doing it again gives the same report."""
    del attempt
    diagnose_instance(current(), instance_id)


def diagnose_missed() -> None:
    """The RQ job by cron: wakes the job of instances of runs that ended badly, sealed, and without a diagnosis; of each
    at most once an hour, so that one which fails again and again holds up no other.
    """
    context = current()
    missing = ~select(Diagnosis.instance_id).where(Diagnosis.instance_id == Instance.id).exists()
    expired = select(Archive.instance_id).where(Archive.instance_id == Instance.id, Archive.expired_ms.is_not(None))
    bad = select(Run.id).where(Run.state.in_(BAD))
    with context.sessions() as session:
        query = select(Instance.id).where(Instance.run_id.in_(bad), Instance.evidence != "", missing, ~expired.exists())
        found = list(session.scalars(query.order_by(Instance.created_ms.desc()).limit(AT_ONCE)))
    for instance_id in found:
        context.enqueue("diagnose", instance_id, context.now_ms() // HOUR_MS)


def diagnose_instance(context: Context, instance_id: str) -> Report | None:
    """Diagnose one instance and keep the report; None if there is no such instance or it served no run.

    Raises `StoreError` while the archive can't be read.
    """
    with context.sessions() as session:
        instance = session.get(Instance, instance_id)
        if instance is None or instance.run is None:
            return None
        run_id = instance.run.id
        facts = facts_of(instance, instance.run, moves_of(session, instance_id))
        records, places = archive.records_of(session, instance_id), archive.places_of(session, instance_id)
        outputs = [row for name in (CONTAINER, DAEMON) if (row := session.get(Artifact, (instance_id, name)))]
    readers = {
        stream: StreamReader(context.store, run_id, instance_id, stream, chunks, places[stream])
        for stream, chunks in records.items()
    }
    report = conclude(_case(context, facts, readers, outputs))
    with writing(context.sessions) as session:
        session.merge(row_of(report, run_id, instance_id, context.now_ms()))
        for stream, line in _cited(report):
            lines = range(line, line + 1)
            archive.pin(session, context.now_ms(), instance_id, stream, lines, "diagnosis", "diagnose")
    return report


def _cited(report: Report) -> set[tuple[str, int]]:
    """The lines of streams that the report points at: they never expire."""
    told = {(moment.file, moment.line) for moment in report.timeline}
    told |= {(line.file, line.line) for hypothesis in report.hypotheses for line in hypothesis.evidence}
    return {(file.removesuffix(".log"), line) for file, line in told if file.endswith(".log") and line > 0}


def row_of(report: Report, run_id: str, instance_id: str, now_ms: int) -> Diagnosis:
    """How a report is kept."""
    return Diagnosis(
        instance_id=instance_id,
        run_id=run_id,
        rules=report.rules,
        stage=report.stage,
        outcome=report.outcome,
        cause=report.top.cause if report.top else "",
        fingerprint=fingerprint(report),
        report=report.to_json(),
        created_ms=now_ms,
    )


def _case(context: Context, facts: dict[str, Any], readers: dict[str, StreamReader], outputs: list[Artifact]) -> Case:
    """The facts with what the archive holds: streams, and the provider's own logs. Raises `StoreError`."""
    case = Case(facts=facts, sources={"case.toml": _as_toml(facts)})
    for stream, reader in readers.items():
        lines = lines_of(_joined(reader))
        if stream == "gpu":
            case.gpu_file, case.gpu = "gpu.log", rows_of(lines)
        else:
            case.streams[f"{stream}.log"] = lines
    for artifact in outputs:
        try:
            case.streams[artifact.name] = lines_of(context.store.get(artifact.object_key, MAX_STREAM_BYTES))
        except (NoSuchObject, TooLarge) as error:
            log.warning("%s of %s is left out: %s", artifact.name, artifact.instance_id, error)
    return case


def _joined(reader: StreamReader) -> bytes:
    """All of a stream, masked once more: what is cited of it is stored and shown."""
    masking, pieces, size = Redactor(), [], 0
    for piece in reader.raw():
        pieces.append(masking.feed(piece))
        size += len(piece)
        if size >= MAX_STREAM_BYTES:
            break
    return b"".join([*pieces, masking.flush()])


def moves_of(session: Session, instance_id: str) -> list[Event]:
    """Every change of an instance's state, in order."""
    moves = select(Event).where(Event.instance_id == instance_id, Event.kind == "instance.state")
    return list(session.scalars(moves.order_by(Event.id)))


def facts_of(instance: Instance, run: Run, moves: list[Event]) -> dict[str, Any]:
    """What SQL knows of a run on one machine, as the tables of a case (`docs/diagnosis.md`)."""
    said = instance.agent_manifest or {}
    result = run.result or {}
    payload = payloads.load(run.payload)
    return {
        "run": {
            "stage_reached": _stage(instance, moves),
            "payload": run.payload,
            "outcome": run.state,
            "reason": run.reason,
            "exit_codes": {k: v for k, v in table_of(said, "exit_codes").items() if v is not None},
            "signals": table_of(said, "signals"),
        },
        "minutes": _minutes(moves, instance),
        "hardware": {
            "gpu_model": next(iter(instance.gpu_names), ""),
            "num_gpus": len(instance.gpu_names),
            **{k: v for k, v in instance.facts.items() if isinstance(v, str | int | float)},
        },
        "image": {"expected_digest": instance.image_expected, "digest": instance.image_ran},
        "provider": {
            "status": instance.provider_status,
            **{k: v for k, v in (instance.seen or {}).items() if isinstance(v, str) and v},
            "controller_says": instance.reason,
        },
        "telemetry": {
            "proofs_reported": result.get("verified", 0),
            "rate_reported": result.get("proofs_per_hour") or 0,
            **({"min_rate": run.min_proofs_per_hour} if run.min_proofs_per_hour else {}),
        },
        "stages": {name: {"depends_on": command.depends_on} for name, command in payload.commands.items()},
    }


def _stage(instance: Instance, moves: list[Event]) -> str:
    """The stage in which it was when its sealing began."""
    before = next((m.old for m in moves if m.new == SEALING), instance.state)
    return _STAGE_OF.get(before, "sealing")


def _minutes(moves: list[Event], instance: Instance) -> dict[str, float]:
    spent: dict[str, float] = {}
    since, state = instance.created_ms, "renting"
    for move in moves:
        stage = _STAGE_OF.get(state, state)
        spent[stage] = spent.get(stage, 0.0) + (move.at_ms - since) / 60_000
        since, state = move.at_ms, move.new
    return {stage: round(minutes, 2) for stage, minutes in spent.items()}


def _as_toml(facts: dict[str, Any]) -> list[str]:
    """The facts as lines that can be cited."""
    lines: list[str] = []
    for table, values in facts.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return lines
