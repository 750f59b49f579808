"""What was decided without a person: by which rule, on what figures, what it saved, and what today's rules would say.

Nothing is written down for this: a decision is an event that exists, its figures are those of the event and of the rows
it is about, and the rules are the very functions that decided. `Changed` rules can be put to the same history. What was
left alone leaves no event: shorter limits would end more than is shown here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session, defer, load_only

from jobs import payloads
from jobs.domain import sequential
from jobs.domain import verdict as rules
from jobs.domain.models import Event, Instance, Proof, Run
from jobs.domain.states import SEALING
from jobs.market.accrual import spent

VERDICT, GIVEN_UP, GAP = "verdict", "given up", "evidence gap"
NAMES = {
    "benchmark.early": "early stop",
    "instance.stopped": "stopped by the provider",
    "instance.boot_failed": "boot failed",
    "instance.wrong_kind": "not as ordered",
    "instance.too_dear": "too dear",
    "instance.adopted": "orphan",
    "machine.marked": "machine marked",
}
RULES = (VERDICT, GIVEN_UP, GAP, *NAMES.values())
MAX_PROOFS = 1000
"""A verdict on more proofs than this is not taken again for a page."""
_LIMITS = re.compile(
    r"stage (?P<late>\w+) ran into its deadline after (?P<took>\d+) s"
    r"|stage (?P<still>\w+) has not moved for (?P<unmoved>\d+) s"
    r"|the agent was not heard for (?P<unheard>\d+) s"
)


@dataclass(frozen=True)
class Changed:
    """Rules to try: None leaves one as it is today."""

    min_proofs_per_hour: float | None = None
    silent_s: float | None = None
    deadline_s: float | None = None


@dataclass(frozen=True)
class Decision:
    """`inputs`: figures by name, in words. `saved_dollars`: None where nobody can say; `at_most`: an upper bound.

    `now`: what the rules (today's, or changed ones) say of the same figures; '' where they can't be asked again.
    """

    at_ms: int
    rule: str
    text: str
    run_id: str | None
    instance_id: str | None
    inputs: Mapping[str, str]
    decided: str
    now: str = ""
    saved_dollars: float | None = None
    at_most: bool = False

    @property
    def differs(self) -> bool:
        return bool(self.now) and self.now != self.decided


def decisions(session: Session, since_ms: int, now_ms: int, changed: Changed, rule: str, limit: int) -> list[Decision]:
    """The newest decisions since `since_ms`, of one rule or ('') of all; at most `limit`."""
    query = select(Event).where(Event.at_ms >= since_ms, _is_decision(rule)).order_by(Event.id.desc()).limit(limit)
    events = session.scalars(query).all()
    run_ids, ids = {e.run_id for e in events if e.run_id}, {e.instance_id for e in events if e.instance_id}
    runs = {run.id: run for run in session.scalars(select(Run).where(Run.id.in_(run_ids)))}
    mine = select(Instance).options(defer(Instance.agent_manifest))
    rows = session.scalars(mine.where(or_(Instance.id.in_(ids), Instance.run_id.in_(run_ids)))).all()
    found = []
    for event in events:
        run = runs.get(event.run_id or "")
        instance = next((i for i in rows if i.id == event.instance_id), None)
        if event.kind == "run.state" and run is not None:
            last = max((i for i in rows if i.run_id == run.id), key=lambda i: i.created_ms, default=None)
            found.append(_verdict(session, event, run, last, changed))
        elif event.kind == "instance.state" and event.new == SEALING:
            found.append(_given_up(event, run, instance, now_ms, changed))
        else:
            found.append(_plain(event, instance))
    return found


def _is_decision(rule: str) -> ColumnElement[bool]:
    by_rule: dict[str, ColumnElement[bool]] = {
        VERDICT: and_(Event.kind == "run.state", Event.actor == "benchmark", Event.new != "cancelled"),
        GIVEN_UP: and_(Event.kind == "instance.state", Event.new == SEALING, Event.actor == "reconcile"),
        GAP: and_(
            Event.kind == "instance.state", Event.old == SEALING, Event.reason.startswith("evidence: the archive")
        ),
        **{name: Event.kind == kind for kind, name in NAMES.items()},
    }
    return by_rule[rule] if rule in by_rule else or_(*by_rule.values())


def _plain(event: Event, instance: Instance | None) -> Decision:
    """A decision on the word of a provider, or on figures that the event itself holds."""
    name = NAMES.get(event.kind, GAP)
    inputs = {key: f"{value:,.4g}" if isinstance(value, float) else str(value) for key, value in event.data.items()}
    if instance is not None and instance.provider_status and name != "early stop":
        inputs.setdefault("provider says", instance.provider_status)
    dollars = event.data.get("dollars") if event.kind == "benchmark.early" else None
    saved = float(dollars) if isinstance(dollars, int | float) else None
    return Decision(event.at_ms, name, event.reason, event.run_id, event.instance_id, inputs, name, "", saved)


def _given_up(event: Event, run: Run | None, instance: Instance | None, now_ms: int, changed: Changed) -> Decision:
    """A machine that was late, silent or too dear: its sentence says for how long, the rules what is too long."""
    said = _LIMITS.search(event.reason)
    inputs, now = dict[str, str](), ""
    if said is not None and run is not None:
        waited, allowed, what = _limit(said, run, changed)
        inputs = {what: _span(waited), "allowed": _span(allowed)}
        now = "given up" if waited > allowed else f"waits until {_span(allowed)}"
    saved = max(0.0, instance.reserved_dollars - spent(instance, now_ms)) if instance is not None else None
    text = event.reason
    return Decision(event.at_ms, GIVEN_UP, text, event.run_id, event.instance_id, inputs, GIVEN_UP, now, saved, True)


def _limit(said: re.Match[str], run: Run, changed: Changed) -> tuple[float, float, str]:
    """(seconds waited, seconds allowed by the rules, what was waited for)."""
    payload = payloads.load(run.payload)
    if said["late"]:
        allowed = changed.deadline_s or min(
            run.max_duration_s, payload.deadlines_s.get(said["late"], run.max_duration_s)
        )
        return float(said["took"]), float(allowed), f"in stage {said['late']}"
    if said["still"]:
        allowed = changed.silent_s or payload.silent_s.get(said["still"], float("inf"))
        return float(said["unmoved"]), float(allowed), f"no move in stage {said['still']}"
    return float(said["unheard"]), float(run.lease_s), "not heard"


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if seconds < 1e9 else "without end"


def _verdict(session: Session, event: Event, run: Run, instance: Instance | None, changed: Changed) -> Decision:
    result, inputs = run.result or {}, dict[str, str]()
    minimum = run.min_proofs_per_hour if changed.min_proofs_per_hour is None else changed.min_proofs_per_hour
    if result:
        inputs = {"valid": f"{result.get('verified', 0)} of {result.get('proofs', 0)}"}
        inputs["rate"] = f"{result.get('proofs_per_hour') or 0:,.1f}/h"
    if minimum:
        inputs["minimum"] = f"{minimum:,.1f}/h"
    now = _verdict_now(session, run, instance, minimum) if instance is not None else ""
    return Decision(
        event.at_ms, VERDICT, event.reason, run.id, instance.id if instance else None, inputs, event.new, now
    )


def _verdict_now(session: Session, run: Run, instance: Instance, minimum: float | None) -> str:
    """The verdict of the same proofs at the same times by the rules of today; '' where they are too many or gone."""
    columns = load_only(
        Proof.index, Proof.round, Proof.verdict, Proof.reason, Proof.pulled_ms, Proof.received_ms, Proof.instance_id
    )
    asked = select(Proof).options(columns).where(Proof.run_id == run.id, Proof.round <= instance.round)
    proofs = session.scalars(asked.order_by(Proof.round, Proof.index).limit(MAX_PROOFS + 1)).all()
    last = [p for p in proofs if p.round == instance.round]
    if not last or len(proofs) > MAX_PROOFS:
        return ""
    pulled, came = _times([p for p in last if p.instance_id == instance.id])
    rate = rules.measure(pulled, came, run.concurrency)
    if (run.result or {}).get("stopped_early") and minimum:
        return _early_now(run, instance, proofs, rate, minimum)
    progress = instance.progress or {}
    return rules.decide(
        run.kind,
        [rules.Outcome(p.index, p.verdict, p.reason) for p in last],
        rate,
        minimum,
        exit_code=progress.get("exit_code"),
        signal=progress.get("signal", ""),
        error=progress.get("error", ""),
        inputs_are_ours="circuit" in run.inputs,
    ).state


def _early_now(run: Run, instance: Instance, proofs: Sequence[Proof], rate: rules.Rate, minimum: float) -> str:
    """A round that was cut short: whether what came is enough to decide, and for what."""
    times: list[float] = []
    for number in sorted({p.round for p in proofs if p.instance_id == instance.id}):
        times += rules.batch_seconds(*_times([p for p in proofs if p.round == number]), run.concurrency)
    found = sequential.decide(times, run.concurrency * 3600 / minimum)
    valid = sum(p.verdict == "valid" for p in proofs if p.round == instance.round)
    return rules.decided_early(found, valid, run.proofs, rate, minimum).state if found else "measures on"


def _times(proofs: Sequence[Proof]) -> tuple[int, list[int]]:
    pulled = min((p.pulled_ms for p in proofs if p.pulled_ms is not None), default=0)
    return pulled, [p.received_ms for p in proofs if p.verdict == "valid" and p.received_ms is not None]
