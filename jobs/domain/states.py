"""The one table of allowed transitions, and the only code that changes a state.

A transition is one SQL statement guarded by the expected old state, by the claim of the job that asks
(where it holds one), and by the guards below. Zero rows changed means that someone else was faster:
`transition` returns False and the caller drops its result.

**Evidence before destroy lives here and nowhere else**: there is no edge to `destroying` but from `sealing`,
and that edge asks for a sealed bundle, a recorded gap, or an operator's forced destroy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, update
from sqlalchemy.orm import Session

from jobs.domain.db import rows_changed
from jobs.domain.models import Event, Instance, Run

RENTING, LOADING, FETCHING, BENCHMARKING, READY = "renting", "loading", "fetching", "benchmarking", "ready"
PROVING, SERVING, SEALING, DESTROYING = "proving", "serving", "sealing", "destroying"
DESTROYED, NOT_RENTED = "destroyed", "not_rented"

WORKING = (LOADING, FETCHING, BENCHMARKING, READY, PROVING, SERVING)
BILLABLE = (*WORKING, SEALING, DESTROYING)
ENDED = (DESTROYED, NOT_RENTED)

QUEUED, ACTIVE = "queued", "active"

LOST_AFTER_MS = 5_000
"""A job enqueued this long ago that has not claimed its row is taken for lost, and enqueued again."""
VERDICTS = ("passed", "slow", "broken", "failed", "cancelled")

Guard = Callable[[], ColumnElement[bool]]


def _evidence_is_kept() -> ColumnElement[bool]:
    return or_(
        Instance.evidence_sha256.is_not(None),
        Instance.evidence_gap.is_not(None),
        Instance.forced_by.is_not(None),
    )


def _absence_is_proven() -> ColumnElement[bool]:
    return and_(Instance.delete_sent_ms.is_not(None), Instance.absent_lists >= 2)


@dataclass(frozen=True)
class Edge:
    """An allowed transition; `guard` is what must hold in SQL, `needs` says it in words."""

    guard: Guard | None = None
    needs: str = ""


INSTANCE_EDGES: dict[tuple[str, str], Edge] = {
    (RENTING, LOADING): Edge(),
    (RENTING, NOT_RENTED): Edge(),
    (LOADING, FETCHING): Edge(),
    (FETCHING, BENCHMARKING): Edge(),
    (FETCHING, READY): Edge(),
    (BENCHMARKING, READY): Edge(),
    (READY, PROVING): Edge(),
    (READY, SERVING): Edge(),
    **{(state, SEALING): Edge() for state in WORKING},
    (SEALING, DESTROYING): Edge(_evidence_is_kept, "a sealed bundle, a recorded gap or a forced destroy"),
    (DESTROYING, DESTROYED): Edge(_absence_is_proven, "our DELETE and two complete lists without the instance"),
}

RUN_EDGES: dict[tuple[str, str], Edge] = {
    (QUEUED, ACTIVE): Edge(),
    (QUEUED, "failed"): Edge(),
    (QUEUED, "cancelled"): Edge(),
    **{(ACTIVE, verdict): Edge() for verdict in VERDICTS},
}


class ForbiddenTransition(ValueError):
    """A transition that the table does not know: a bug of ours, never a race."""


def transition(
    session: Session,
    instance: Instance,
    old: str,
    new: str,
    *,
    reason: str,
    actor: str,
    now_ms: int,
    token: str | None = None,
    values: dict[str, Any] | None = None,
) -> bool:
    """Move `instance` from `old` to `new` in the caller's transaction, with its event row.

    `values` are further columns set by the same statement. False: the row was no longer in `old`, the
    claim `token` was lost, or the edge's guard does not hold. Raises `ForbiddenTransition` for an unknown edge.
    """
    edge = INSTANCE_EDGES.get((old, new))
    if edge is None:
        raise ForbiddenTransition(f"instance {instance.id}: no edge {old} -> {new}")
    where = [Instance.id == instance.id, Instance.state == old]
    if token is not None:
        where.append(Instance.claim_token == token)
    if edge.guard is not None:
        where.append(edge.guard())
    session.flush()
    statement = (
        update(Instance)
        .where(*where)
        .values(
            state=new,
            state_ms=now_ms,
            reason=reason,
            claim_token=None,
            claim_until_ms=None,
            wake_at_ms=now_ms + LOST_AFTER_MS if new in (SEALING, DESTROYING) else None,
            **({"ended_ms": now_ms} if new in ENDED else {}),
            **(values or {}),
        )
    )
    changed = rows_changed(session, statement)
    session.expire(instance)
    if changed != 1:
        return False
    session.add(
        Event(
            at_ms=now_ms,
            run_id=instance.run_id,
            instance_id=instance.id,
            actor=actor,
            kind="instance.state",
            old=old,
            new=new,
            reason=reason,
        )
    )
    return True


def conclude(
    session: Session,
    run: Run,
    old: str,
    new: str,
    *,
    reason: str,
    actor: str,
    now_ms: int,
    values: dict[str, Any] | None = None,
) -> bool:
    """Move `run` from `old` to `new`; a verdict, once given, is never changed. Same rules as `transition`."""
    if (old, new) not in RUN_EDGES:
        raise ForbiddenTransition(f"run {run.id}: no edge {old} -> {new}")
    session.flush()
    times = {"started_ms": now_ms} if new == ACTIVE else {"ended_ms": now_ms}
    statement = (
        update(Run)
        .where(Run.id == run.id, Run.state == old)
        .values(
            state=new,
            reason=reason,
            claim_token=None,
            claim_until_ms=None,
            wake_at_ms=None,
            **times,
            **(values or {}),
        )
    )
    changed = rows_changed(session, statement)
    session.expire(run)
    if changed != 1:
        return False
    session.add(Event(at_ms=now_ms, run_id=run.id, actor=actor, kind="run.state", old=old, new=new, reason=reason))
    return True
