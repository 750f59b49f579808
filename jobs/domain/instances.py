"""What is done to an instance from outside its jobs: sealed, left for another machine, failed with its run, destroyed
on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.orm import Session

from jobs import payloads
from jobs.domain.market_models import Offer
from jobs.domain.models import Instance, Run
from jobs.domain.states import ACTIVE, DESTROYING, SEALING, WORKING, conclude, transition
from jobs.domain.work import Claim, record, transaction, wake
from jobs.market import reputation
from jobs.market.providers.base import KeyRefused

if TYPE_CHECKING:
    from jobs.context import Context
    from jobs.market.providers.base import Listing, ProviderInstance, ProviderUnavailable

MAX_MACHINES = 3
"""How many machines a run may wear out before it is given up."""


def label_of(controller_id: str, instance_id: str) -> str:
    """The name under which the marketplace lists the instance: ours, and which."""
    return f"provefleet:{controller_id}:{instance_id}"


def listed(listing: Listing, instance: Instance) -> ProviderInstance | None:
    """`instance` as the provider lists it: under its label, or, for one adopted late, under its provider's id."""
    ours = (i for i in listing.instances if i.label == instance.label or i.provider_id == instance.provider_id)
    return next(ours, None)


def stage_deadline_s(payload: str, stage: str) -> float:
    """Seconds that a stage may take, however well it moves on."""
    return payloads.load(payload).deadlines_s[stage]


def to_sealing(
    context: Context, session: Session, instance: Instance, reason: str, actor: str, *, token: str | None = None
) -> bool:
    """Stop the work and keep the evidence: any working state to `sealing`, with its deadline. False: not working."""
    if instance.state not in WORKING:
        return False
    now = context.now_ms()
    deadline = now + context.settings.evidence_deadline_s * 1000
    values = {"evidence_deadline_ms": deadline, "stage": "sealing", "stage_ms": now, "stage_deadline_ms": deadline}
    moved = transition(
        session, instance, instance.state, SEALING, reason=reason, actor=actor, now_ms=now, token=token, values=values
    )
    if moved:
        wake(session, instance, now)
    return moved


def fail(
    context: Context, session: Session, instance: Instance, reason: str, actor: str, *, token: str | None = None
) -> bool:
    """The instance can't go on: its run, if still active, ends `failed` with the reason, and the evidence is sealed."""
    if not to_sealing(context, session, instance, reason, actor, token=token):
        return False
    run = session.get(Run, instance.run_id) if instance.run_id else None
    if run is not None and run.state == ACTIVE:
        conclude(session, run, ACTIVE, "failed", reason=reason, actor=actor, now_ms=context.now_ms())
    return True


def leave(
    context: Context, session: Session, instance: Instance, reason: str, actor: str, *, token: str | None = None
) -> bool:
    """The machine is no good, before anything was measured on it: it is sealed, and its run goes on to another one.

    Where there is none to go to, the run ends `failed` with the reason, as in `fail`.
    """
    if not leave_unblamed(context, session, instance, reason, actor, token=token):
        return False
    reputation.failed(session, context.now_ms(), instance, reason, actor)
    return True


def leave_unblamed(
    context: Context, session: Session, instance: Instance, reason: str, actor: str, *, token: str | None = None
) -> bool:
    """As `leave`, where the machine is not at fault: it is not remembered for it."""
    if not to_sealing(context, session, instance, reason, actor, token=token):
        return False
    run, now = session.get(Run, instance.run_id) if instance.run_id else None, context.now_ms()
    if run is None or run.state != ACTIVE:
        return True
    tried = machines_tried(session, run.id)
    if len(tried) >= MAX_MACHINES:
        reason = f"{len(tried)} machines were tried; the last: {reason}"
    if len(tried) >= MAX_MACHINES or run.offer_id is not None or not _is_another_offered(session, run, tried):
        conclude(session, run, ACTIVE, "failed", reason=reason, actor=actor, now_ms=now)
        return True
    run.stage = f"goes on to another machine: {reason}"[:200]
    text = f"machine {instance.machine_id} is left ({len(tried)} of {MAX_MACHINES}): {reason}"
    data = {"machine": instance.machine_id, "offer": instance.offer_id}
    record(session, now, actor, "run.goes_on", text, run_id=run.id, instance_id=instance.id, data=data)
    return True


def machines_tried(session: Session, run_id: str) -> frozenset[tuple[str, str]]:
    """(provider, machine id) of all that were really rented for the run, whatever became of them."""
    rented = (Instance.run_id == run_id, Instance.rented_ms.is_not(None))
    rows = session.execute(select(Instance.provider, Instance.machine_id).where(*rented))
    return frozenset((provider, machine) for provider, machine in rows)


def _is_another_offered(session: Session, run: Run, tried: frozenset[tuple[str, str]]) -> bool:
    mine = {machine for provider, machine in tried if provider == run.provider}
    others = (Offer.provider == run.provider, Offer.gone_ms.is_(None), Offer.machine_id.not_in(mine))
    return session.scalar(select(Offer.offer_id).where(*others).limit(1)) is not None


def note_unavailable(context: Context, claim: Claim, actor: str, error: ProviderUnavailable) -> None:
    """Record that the provider can't be used, once for each thing that it says. A refused key needs an operator."""
    text = str(error)
    kind = "provider.key_refused" if isinstance(error, KeyRefused) else "provider.unavailable"
    with transaction(context) as session:
        mine = claim.mine(session)
        if not isinstance(mine, Instance) or mine.provider_status == text[:64]:
            return
        mine.provider_status = text[:64]
        record(session, context.now_ms(), actor, kind, text, run_id=mine.run_id, instance_id=mine.id)


class DestroyRefused(ValueError):
    """The instance can't be destroyed by request: why, and what to do."""


def request_destroy(context: Context, instance_id: str, actor: str, reason: str, force: bool = False) -> None:
    """Seal and destroy; with `force`, destroy without waiting for the evidence, recorded as the operator's decision.

    Raises `DestroyRefused`.
    """
    now = context.now_ms()
    if not reason.strip():
        raise DestroyRefused("say why: the reason is kept with the instance")
    with transaction(context) as session:
        instance = session.get(Instance, instance_id, with_for_update=True)
        if instance is None:
            raise DestroyRefused("there is no such instance")
        if instance.state in WORKING:
            run = session.get(Run, instance.run_id) if instance.run_id else None
            if run is not None and run.state == ACTIVE:
                conclude(session, run, ACTIVE, "cancelled", reason=f"destroyed: {reason}", actor=actor, now_ms=now)
            to_sealing(context, session, instance, f"destroyed by {actor}: {reason}", actor)
        elif instance.state != SEALING:
            raise DestroyRefused(f"it is {instance.state} already")
        if force and instance.state == SEALING:
            instance.forced_by = actor
            instance.evidence_gap = f"destroyed by force before the evidence was sealed: {reason}"
            instance.evidence, instance.evidence_text = "gaps", instance.evidence_gap
            record(session, now, actor, "instance.forced", reason, run_id=instance.run_id, instance_id=instance.id)
            transition(session, instance, SEALING, DESTROYING, reason=f"forced: {reason}", actor=actor, now_ms=now)
            wake(session, instance, now)
