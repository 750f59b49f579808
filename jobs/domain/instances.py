"""What is done to an instance from outside its jobs: sealed, destroyed on request, failed with its run, paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from jobs import payloads
from jobs.domain.models import Instance, Run
from jobs.domain.states import ACTIVE, DESTROYING, SEALING, WORKING, conclude, transition
from jobs.domain.work import record, transaction, wake

if TYPE_CHECKING:
    from jobs.context import Context
    from jobs.market.providers.base import Listing, ProviderInstance


def label_of(controller_id: str, instance_id: str) -> str:
    """The name under which the marketplace lists the instance: ours, and which."""
    return f"provefleet:{controller_id}:{instance_id}"


def listed(listing: Listing, instance: Instance) -> ProviderInstance | None:
    """`instance` as the provider lists it: under its label, or, for one adopted late, under its provider's id."""
    ours = (i for i in listing.instances if i.label == instance.label or i.provider_id == instance.provider_id)
    return next(ours, None)


def spent_dollars(instance: Instance, now_ms: int) -> float:
    """Dollars from the rental to its proven end, or to now."""
    if instance.rented_ms is None:
        return 0.0
    return instance.dollars_per_hour * max(0, (instance.ended_ms or now_ms) - instance.rented_ms) / 3_600_000


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
