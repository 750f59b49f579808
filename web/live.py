"""The parts of a run's and an instance's page that change while one looks: rendered for the page itself,
and again for the event stream when something has happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import render_template
from markupsafe import Markup
from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from jobs.context import Context
from jobs.domain.models import Artifact, Event, Instance, Proof, Run
from jobs.domain.states import ENDED, VERDICTS
from jobs.market import specs
from jobs.market.accrual import spent
from web import diagnoses, memory, queries
from web.charts import Span

EVENTS = 120
PROOFS = 24
ARTIFACTS = 30

RUN_PARTS = ("head", "why", "progress", "waterfall", "instances", "proofs", "streams", "artifacts", "timeline")
INSTANCE_PARTS = ("head", "progress", "market", "waterfall", "streams", "artifacts", "facts", "timeline")

Parts = dict[str, Markup]


def run_parts(context: Context, session: Session, run: Run) -> Parts:
    """Every part of a run's page, by name. Needs a request context (for addresses)."""
    now = context.now_ms()
    ids = [instance.id for instance in run.instances]
    events = _events(session, Event.run_id == run.id)
    counts = queries.proof_counts(session, run.id)
    data: dict[str, Any] = {
        "run": run,
        "now": now,
        "cost": queries.cost(run.instances, now),
        "machines": memory.known(session, ((i.provider, i.machine_id) for i in run.instances), now),
        "streams": queries.streams_of(session, ids),
        "events": events,
        "diagnoses": diagnoses.of_run(session, run),
        "passed": passed_over(events),
        "spans": run_spans(run, events, now),
        "counts": counts,
        "joules": queries.joules_per_proof(session, run.id),
        "round": max((r for r, _ in counts), default=1),
        "proofs": _proofs(session, run.id),
        **_artifacts(session, ids),
    }
    return {name: _render(f"parts/run_{name}.html", data) for name in RUN_PARTS}


def instance_parts(context: Context, session: Session, instance: Instance) -> Parts:
    """Every part of an instance's page, by name. Needs a request context."""
    now = context.now_ms()
    events = _events(session, Event.instance_id == instance.id)
    data: dict[str, Any] = {
        "instance": instance,
        "now": now,
        "cost": queries.cost([instance], now),
        "machines": memory.known(session, [(instance.provider, instance.machine_id)], now),
        "streams": queries.streams_of(session, [instance.id]),
        "events": events,
        "spans": instance_spans(instance, events, now),
        "differences": specs.noted(session, instance.id),
        **_artifacts(session, [instance.id]),
    }
    return {name: _render(f"parts/instance_{name}.html", data) for name in INSTANCE_PARTS}


@dataclass(frozen=True)
class PassedOver:
    """Offers that were not for a run when its newest machine was chosen: how many, and the first with their reasons."""

    count: int
    examples: Sequence[tuple[str, str]]


def passed_over(events: Sequence[Event]) -> PassedOver | None:
    for event in events:  # newest first
        if event.kind == "instance.intended" and event.data.get("passed_over"):
            first = event.data.get("passed_over_first", [])
            return PassedOver(int(event.data["passed_over"]), [(str(machine), str(why)) for machine, why in first])
    return None


def _render(template: str, data: dict[str, Any]) -> Markup:
    return Markup(render_template(template, **data))  # noqa: S704 - Jinja has escaped what is in it


def _events(session: Session, where: Any) -> Sequence[Event]:
    return session.scalars(select(Event).where(where).order_by(Event.id.desc()).limit(EVENTS)).all()


def _proofs(session: Session, run_id: str) -> Sequence[Proof]:
    """The newest round's proofs, bad ones first: what an operator looks for."""
    bad = case((Proof.verdict.in_(("invalid", "error")), 0), else_=1)
    columns = (
        Proof.round,
        Proof.index,
        Proof.verdict,
        Proof.reason,
        Proof.pulled_ms,
        Proof.received_ms,
        Proof.machine_ms,
        Proof.witness_name,
        Proof.joules,
        Proof.joules_why,
    )
    return session.execute(  # type: ignore[return-value]
        select(*columns).where(Proof.run_id == run_id).order_by(bad, Proof.round.desc(), Proof.index).limit(PROOFS)
    ).all()


def _artifacts(session: Session, ids: Sequence[str]) -> dict[str, Any]:
    if not ids:
        return {"artifacts": [], "artifacts_total": 0}
    query = select(Artifact).where(Artifact.instance_id.in_(ids))
    total = session.scalar(query.with_only_columns(func.count())) or 0
    rows = session.scalars(query.order_by(Artifact.instance_id, Artifact.name).limit(ARTIFACTS)).all()
    return {"artifacts": rows, "artifacts_total": total}


def instance_spans(instance: Instance, events: Sequence[Event], now_ms: int) -> list[Span]:
    """How long an instance was in each state, and what that cost; `events` are newest first."""
    dollars_per_ms = _dollars_per_ms(instance, now_ms)
    moves = [e for e in reversed(events) if e.kind == "instance.state" and e.instance_id == instance.id]
    spans = []
    start, state = instance.created_ms, moves[0].old if moves else instance.state
    for move in moves:
        spans.append(_span(instance, state, start, move.at_ms, dollars_per_ms))
        start, state = move.at_ms, move.new
    if state not in ENDED:
        spans.append(_span(instance, state, start, now_ms, dollars_per_ms, now=True))
    return [span for span in spans if span.ms > 0]


def _dollars_per_ms(instance: Instance, now_ms: int) -> float:
    """What it cost, spread evenly over the time that it was rented."""
    paid_ms = (instance.ended_ms or now_ms) - instance.rented_ms if instance.rented_ms is not None else 0
    return spent(instance, now_ms) / paid_ms if paid_ms > 0 else 0.0


def _span(instance: Instance, state: str, start: int, end: int, dollars_per_ms: float, *, now: bool = False) -> Span:
    paid_from = max(start, instance.rented_ms) if instance.rented_ms is not None else end
    return Span(state, start, max(end - start, 0), dollars_per_ms * max(0, end - paid_from), now)


def run_spans(run: Run, events: Sequence[Event], now_ms: int) -> list[Span]:
    """The wait before the first machine, then every machine's states."""
    first = min((i.created_ms for i in run.instances), default=run.ended_ms or now_ms)
    spans = [Span("waiting", run.created_ms, first - run.created_ms, 0.0, run.state == "queued", idle=True)]
    for instance in run.instances:
        spans += instance_spans(instance, events, now_ms)
    return [span for span in spans if span.ms > 0]


@dataclass(frozen=True)
class Glance:
    """What a channel compares to see whether anything happened; `ended`: nothing more will."""

    marks: tuple[Any, ...]
    ended: bool
    instance_ids: tuple[tuple[str, str], ...]
    """(run id or 'none', instance id) of the instances whose lines are followed."""


def glance(session: Session, kind: str, key: str) -> Glance | None:
    """A few indexed reads; None when there is no such run or instance."""
    columns = (
        Instance.run_id,
        Instance.id,
        Instance.state,
        Instance.stage,
        Instance.moved_ms,
        Instance.progress,
        Instance.evidence,
        Instance.round,
        Instance.provider_status,
        Instance.seen,
        Instance.billed_dollars,
    )
    if kind == "run":
        run = session.execute(select(Run.state, Run.stage, Run.reason).where(Run.id == key)).first()
        rows = session.execute(select(*columns).where(Instance.run_id == key)).all()
        newest = session.scalar(select(func.max(Event.id)).where(Event.run_id == key))
        if run is None:
            return None
        ended = run.state in VERDICTS and all(row.state in ENDED for row in rows)
    else:
        run = None
        rows = session.execute(select(*columns).where(Instance.id == key)).all()
        newest = session.scalar(select(func.max(Event.id)).where(Event.instance_id == key))
        if not rows:
            return None
        ended = rows[0].state in ENDED
    return Glance((run, newest, str(rows)), ended, tuple((row.run_id or "none", row.id) for row in rows))


def parts_of(context: Context, session: Session, kind: str, key: str) -> Parts:
    """The parts of a run or an instance by its id; {} when it is gone."""
    if kind == "run":
        run = queries.load_run(session, key)
        return run_parts(context, session, run) if run else {}
    instance = queries.load_instance(session, key)
    return instance_parts(context, session, instance) if instance else {}
