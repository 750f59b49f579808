"""Choosing an offer, and writing down the intent to rent it: reservation and instance in one transaction.

A run has at most one live instance: this is the only place that makes one, under the run's claim, and the
unique index on live offers keeps two runs off one offer.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from jobs.domain.controller import controller_id
from jobs.domain.instances import label_of, stage_deadline_s
from jobs.domain.models import Instance, Offer, Run
from jobs.domain.runs import reservation, tail_s
from jobs.domain.states import ACTIVE, ENDED, QUEUED, RENTING, conclude
from jobs.domain.work import Claim, record, transaction, wake
from jobs.market import ranking

if TYPE_CHECKING:
    from jobs.context import Context

MAX_RENTALS = 3


@dataclass(frozen=True)
class Placed:
    """`reason` is '' when an instance was written down; else why not, and whether waiting can help (`final` False)."""

    reason: str = ""
    final: bool = False


def _fits(run: Run, offer: Offer, settings_tail_s: int) -> str:
    """Why this offer is not for this run; '' where it is."""
    if run.max_dollars_per_hour is not None and offer.dollars_per_hour > run.max_dollars_per_hour:
        return f"costs ${offer.dollars_per_hour:.4g}/h, over the limit of ${run.max_dollars_per_hour:.4g}/h"
    if run.max_dollars is not None and offer.dollars_per_hour * settings_tail_s / 3600 >= run.max_dollars:
        return f"sealing the evidence alone could cost more than ${run.max_dollars:.4g}"
    return ""


def _candidates(context: Context, session: Session, run: Run) -> tuple[list[Offer], Placed]:
    """Offers for this run, cheapest first; or why there are none."""
    query = select(Offer).where(Offer.provider == run.provider, Offer.gone_ms.is_(None))
    if run.offer_id:
        query = query.where(Offer.offer_id == run.offer_id)
    offers = list(session.scalars(query.order_by(Offer.dollars_per_hour, Offer.offer_id)))
    taken = set(
        session.scalars(
            select(Instance.offer_id).where(Instance.provider == run.provider, Instance.state.not_in(ENDED))
        )
    )
    if not offers:
        # A rented offer leaves the market until it is freed: then waiting helps.
        busy = run.offer_id in taken if run.offer_id else bool(taken)
        if busy:
            return [], Placed("waiting for a free offer")
        what = f"offer {run.offer_id}" if run.offer_id else "any offer"
        return [], Placed(f"{run.provider} has not {what} to rent now; scan again, or choose another", final=True)
    tail = tail_s(context.settings, run.lease_s)
    reasons = []
    fitting = []
    for ranked in ranking.rank_offers(context, session, run, offers):
        why = ranked.skipped or _fits(run, ranked.offer, tail)
        if why:
            reasons.append(why)
        else:
            fitting.append(ranked.offer)
    if not fitting:
        return [], Placed(f"no offer fits: the cheapest {reasons[0]}", final=True)
    free = [offer for offer in fitting if offer.offer_id not in taken]
    return free, Placed("" if free else "waiting for a free offer")


def place(context: Context, claim: Claim) -> Placed:
    """Write down the intent to rent the best offer. The claim ends with the transaction that does."""
    now = context.now_ms()
    try:
        with transaction(context) as session:
            run = claim.mine(session)
            if not isinstance(run, Run) or run.state not in (QUEUED, ACTIVE):
                return Placed()
            if run.rentals >= MAX_RENTALS:
                return Placed(
                    f"{run.rentals} offers in a row were gone when we came to rent them; scan and try again", final=True
                )
            offers, why_not = _candidates(context, session, run)
            if not offers:
                return why_not
            instance = _intend(context, session, run, offers[0], now)
            if run.state == QUEUED:
                conclude(
                    session,
                    run,
                    QUEUED,
                    ACTIVE,
                    reason=f"offer {instance.offer_id} chosen",
                    actor="prepare",
                    now_ms=now,
                )
            else:
                run.claim_token = run.claim_until_ms = run.wake_at_ms = None
            wake(session, instance, now)
            return Placed()
    except IntegrityError:
        return Placed("waiting for a free offer")


def _intend(context: Context, session: Session, run: Run, offer: Offer, now: int) -> Instance:
    instance_id = context.new_id()
    held = reservation(context.settings, offer.dollars_per_hour, run.max_duration_s, run.lease_s, run.max_dollars)
    deadline = now + int(stage_deadline_s(run.payload, "loading") * 1000)
    instance = Instance(
        id=instance_id,
        run_id=run.id,
        label=label_of(controller_id(session, context), instance_id),
        provider=run.provider,
        offer_id=offer.offer_id,
        machine_id=offer.machine_id,
        host_id=offer.host_id,
        state=RENTING,
        state_ms=now,
        reason="",
        stage="loading",
        stage_ms=now,
        stage_deadline_ms=deadline,
        moved_ms=now,
        progress={},
        round=1,
        dollars_per_hour=offer.dollars_per_hour,
        reserved_dollars=held,
        spent_dollars=0.0,
        facts={},
        telemetry={},
        image_expected=context.settings.payload_image,
        created_ms=now,
        job_attempt=0,
        missed_lists=0,
        absent_lists=0,
        evidence="",
        evidence_text="",
        provider_status="",
        bootstrap_sha256="",
        image_ran="",
    )
    session.add(instance)
    run.rentals += 1
    run.stage = "renting"
    session.flush()
    record(
        session,
        now,
        "prepare",
        "instance.intended",
        f"offer {offer.offer_id} at ${offer.dollars_per_hour:.4g}/h, ${held:.4f} reserved",
        run_id=run.id,
        instance_id=instance_id,
        data={"offer": offer.offer_id, "machine": offer.machine_id},
    )
    return instance


def new_bootstrap_token() -> str:
    return secrets.token_urlsafe(32)
