"""Diagnoses of seeded failures. See `seed`."""

from __future__ import annotations

from sqlalchemy.orm import Session

from jobs.diagnose import row_of
from jobs.diagnosis.case import Case
from jobs.diagnosis.engine import diagnose
from jobs.domain.models import Instance, Run
from tests.web.seed_market import HOUR


def diagnosed(session: Session, now_ms: int, run: Run, instance: Instance, bench: list[str]) -> None:
    """What the rules say of these lines, beside talk of a tunnel; older rules than today's, an hour ago."""
    facts = {"run": {"stage_reached": "benchmark", "outcome": run.state, "reason": run.reason}}
    setup = ["tunnels are up: 1235 (controller), 1234 (lotus)", "benchmark.sh exited with error"]
    report = diagnose(Case({"setup.log": setup, "bench.log": bench}, facts))
    session.flush()
    row = row_of(report, run.id, instance.id, now_ms - HOUR)
    row.rules = "0" * 12
    session.add(row)
