"""Follows one run in SQL, for `demo`: where it is, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from jobs.context import Context
from jobs.domain.market_models import Offer
from jobs.domain.models import Chunk, Event, Instance, Proof, Run
from jobs.domain.states import ENDED, VERDICTS


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment. `over`: it has a verdict, and every machine that it rented is accounted for. `chosen`: which
    machine it rents at what price, and why."""

    state: str
    stage: str
    reason: str
    proofs: int
    verified: int
    instance: str
    evidence: str
    chunks: int
    last_event: str
    over: bool
    chosen: str = ""
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The step it is at, in a word or two."""
        if self.instance != "none" and (self.state in VERDICTS or self.instance not in ENDED):
            return self.instance
        return self.stage or self.state

    def why_not_well(self) -> str:
        """Empty when the run went as it should, from the first proof to the last byte of evidence."""
        if self.state != "passed":
            return f"the run is {self.state}: {self.reason or 'no reason given'}"
        if self.verified != self.proofs:
            return f"{self.verified} of {self.proofs} proofs are verified"
        if self.evidence != "complete" or not self.chunks:
            return f"evidence is {self.evidence or 'missing'}, with {self.chunks} chunks"
        if self.instance != "destroyed":
            return f"the instance is {self.instance}"
        return ""


def look(context: Context, run_id: str) -> Snapshot:
    """The run now. Raises sqlalchemy.exc.SQLAlchemyError, and LookupError when there is no such run."""
    with context.sessions() as session:
        run = session.get(Run, run_id)
        if run is None:
            raise LookupError(f"there is no run {run_id}")
        instances = list(
            session.scalars(select(Instance).where(Instance.run_id == run_id).order_by(Instance.created_ms))
        )
        last = instances[-1] if instances else None
        return Snapshot(
            state=run.state,
            stage=run.stage,
            reason=run.reason,
            proofs=run.proofs,
            verified=_verified(session, run_id, last),
            instance=last.state if last else "none",
            evidence=last.evidence if last else "",
            chunks=_chunks(session, last),
            last_event=_last_event(session, run_id),
            over=run.state in VERDICTS and all(i.state in ENDED for i in instances),
            chosen=_chosen(session, last),
            result=run.result or {},
        )


def _verified(session: Session, run_id: str, instance: Instance | None) -> int:
    query = select(func.count()).where(Proof.run_id == run_id, Proof.verdict == "valid")
    return session.scalar(query.where(Proof.round == (instance.round if instance else 1))) or 0


def _chunks(session: Session, instance: Instance | None) -> int:
    return session.scalar(select(func.count()).where(Chunk.instance_id == instance.id)) or 0 if instance else 0


def _chosen(session: Session, instance: Instance | None) -> str:
    if instance is None:
        return ""
    offer = session.get(Offer, (instance.provider, instance.offer_id))
    what = f"{offer.num_gpus}x {offer.gpu_model} " if offer is not None and offer.num_gpus else ""
    price = f"{what}at ${instance.dollars_per_hour:.4g}/h, ${instance.reserved_dollars:.4f} reserved"
    return f"offer {instance.offer_id}, machine {instance.machine_id}, {price}: {instance.forecast.get('why', '')}"


def _last_event(session: Session, run_id: str) -> str:
    event = session.scalar(select(Event).where(Event.run_id == run_id).order_by(Event.id.desc()).limit(1))
    return f"{event.kind}: {event.reason}".rstrip(": ") if event else "nothing yet"


class Bar:
    """Shows snapshots: one bar redrawn in place on a terminal, a plain line a change elsewhere."""

    WIDTH = 30

    def __init__(self, write: Callable[[str], None], terminal: bool) -> None:
        self._write, self._terminal = write, terminal
        self._shown = ""

    def show(self, now: Snapshot) -> None:
        text = f"{now.verified}/{now.proofs} proofs verified, {now.where}"
        if text == self._shown:
            return
        self._shown = text
        if self._terminal:
            full = self.WIDTH * now.verified // max(now.proofs, 1)
            self._write(f"\r\x1b[K  [{'#' * full}{'.' * (self.WIDTH - full)}] {text}")
        else:
            self._write(f"  {text}\n")

    def close(self) -> None:
        if self._terminal and self._shown:
            self._write("\n")
