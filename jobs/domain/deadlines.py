"""Every limit in time and money, enforced from SQL alone: what is late, silent, lost or too dear is sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import exists, or_, select
from sqlalchemy.orm import Session

from jobs import payloads
from jobs.domain.instances import fail, spent_dollars
from jobs.domain.models import Instance, Run
from jobs.domain.runs import tail_s
from jobs.domain.states import ACTIVE, BILLABLE, ENDED, WORKING
from jobs.domain.work import transaction, wake

if TYPE_CHECKING:
    from jobs.context import Context

ACCOUNT_STEP_DOLLARS = 0.0001


def overdue(context: Context, instance: Instance, run: Run | None, now: int) -> str:
    """Why the instance must not go on; '' while it may."""
    if now > instance.stage_deadline_ms:
        took = (now - instance.stage_ms) / 1000
        return f"stage {instance.stage} ran into its deadline after {took:.0f} s"
    if instance.lease_expires_ms is not None and now > instance.lease_expires_ms:
        heard = (now - (instance.heard_ms or instance.stage_ms)) / 1000
        return f"the agent was not heard for {heard:.0f} s: its lease ran out"
    if run is None:
        return ""
    silent_s = payloads.load(run.payload).silent_s.get(instance.stage)
    if silent_s is not None and now - instance.moved_ms > silent_s * 1000:
        return f"stage {instance.stage} has not moved for {(now - instance.moved_ms) / 1000:.0f} s"
    if instance.rented_ms is None:
        return ""
    if now - instance.rented_ms > run.max_duration_s * 1000:
        return f"max_duration_s of {run.max_duration_s} s is used up"
    tail_dollars = instance.dollars_per_hour * tail_s(context.settings, run.lease_s) / 3600
    if tail_dollars > 0 and spent_dollars(instance, now) + tail_dollars > instance.reserved_dollars + 1e-9:
        return f"the reservation of ${instance.reserved_dollars:.4f} leaves only what sealing may cost"
    return ""


def enforce(context: Context) -> int:
    """Seal what is overdue, keep the account, wake what was left behind; the number of instances sealed."""
    now = context.now_ms()
    sealed = 0
    with context.sessions() as session:
        live = list(session.scalars(select(Instance.id).where(Instance.state.in_(BILLABLE))))
    for instance_id in live:
        sealed += _one(context, instance_id, now)
    _wake_left_behind(context, now)
    return sealed


def _one(context: Context, instance_id: str, now: int) -> bool:
    with context.sessions() as session:
        instance = session.get(Instance, instance_id)
        run = session.get(Run, instance.run_id) if instance and instance.run_id else None
        if instance is None:
            return False
        why = overdue(context, instance, run, now) if instance.state in WORKING else ""
        spent = spent_dollars(instance, now)
        if not why and spent - instance.spent_dollars < ACCOUNT_STEP_DOLLARS:
            return False
    with transaction(context) as session:
        mine = session.get(Instance, instance_id)
        if mine is None or mine.state in ENDED:
            return False
        mine.spent_dollars = spent
        return bool(why) and fail(context, session, mine, why, "reconcile")


def _wake_left_behind(context: Context, now: int) -> None:
    """An active run without a live instance goes on to another offer, or ends saying why it can't."""
    alive = exists().where(Instance.run_id == Run.id, Instance.state.not_in(ENDED))
    idle = or_(Run.claim_until_ms.is_(None), Run.claim_until_ms < now)
    left = select(Run.id).where(Run.state == ACTIVE, Run.wake_at_ms.is_(None), idle, ~alive)
    with context.sessions() as session:
        ids = list(session.scalars(left))
    for run_id in ids:
        with transaction(context) as session:
            _wake_run(session, run_id, now)


def _wake_run(session: Session, run_id: str, now: int) -> None:
    run = session.get(Run, run_id)
    if run is not None and run.state == ACTIVE:
        wake(session, run, now)
