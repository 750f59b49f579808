"""`deploy`: rent what was intended, once.

The intent (the instance's row and label) is committed before the provider is called, and so is the fact that
the call was sent. After any doubt the label is looked up; a create is never blindly sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select, update

from jobs import scan
from jobs.context import Context, current
from jobs.domain import roles
from jobs.domain.agents import sha256_of
from jobs.domain.instances import leave, listed, note_unavailable, to_sealing
from jobs.domain.market_models import Offer
from jobs.domain.models import Instance, Run
from jobs.domain.placing import new_bootstrap_token
from jobs.domain.states import ACTIVE, LOADING, NOT_RENTED, RENTING, conclude, transition
from jobs.domain.work import Claim, take, transaction, wake
from jobs.market import listing, provider, reach
from jobs.market.prices import tail_s
from jobs.market.providers.base import (
    BeingListed,
    NoCredit,
    OfferGone,
    Order,
    ProviderUnavailable,
    RentalRefused,
    RentedStopped,
)

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from jobs.market.providers.base import Provider

APART_MS = 2_000
# A marketplace may list a new rental half a minute late: absence is believed only after twice that.
REMOTE_LAG_MS = 60_000
# A create waits for its pace, and is given up by its own timeout; who died holding the lock delays others by this.
CREATE_HOLD_MS = 90_000
# What was searched longer ago may have another price by now.
OFFER_AGE_MS = 600_000
NO_CREDIT_AGAIN_MS, NO_CREDIT_PATIENCE_MS = 60_000, 1_800_000
NO_CREDIT = "no credit"
STALE = "the offer was seen too long ago to trust its price"


def deploy(instance_id: str, attempt: int) -> None:
    """The RQ job of an instance in `renting`."""
    del attempt
    context = current()
    held = take(context, Instance, instance_id, (RENTING,))
    if held is None:
        return
    claim, instance = held
    # A create may take longer than a claim holds; a second worker must not look for what is still on its way.
    with claim.released_on_error(), claim.kept_alive():
        try:
            if instance.rent_sent_ms is not None:
                _resolve_doubt(context, claim, instance)
            elif why_not := _no_longer_wanted(context, instance):
                _not_rented(context, claim, why_not)
            else:
                _rent_alone(context, claim, instance)
        except OfferGone as error:
            _not_rented(context, claim, f"offer gone: {error}")
        except NoCredit as error:
            _not_rented(context, claim, f"{NO_CREDIT}: {error}")
        except RentalRefused as error:
            _not_rented(context, claim, f"refused by the provider: {error}", final=True)
        except RentedStopped as error:
            _rented(context, claim, error.provider_id, "made, but stopped", stopped=str(error))
        except BeingListed:
            claim.release(wake_in_s=1)
        except ProviderUnavailable as error:
            note_unavailable(context, claim, "deploy", error)
            claim.release(wake_in_s=3)


def _no_longer_wanted(context: Context, instance: Instance) -> str:
    """Why nothing is to be rented any more; '' where it is."""
    with context.sessions() as session:
        run = session.get(Run, instance.run_id) if instance.run_id else None
        offer = session.get(Offer, (instance.provider, instance.offer_id))
    if run is None or run.state != ACTIVE:
        return "the run ended before anything was rented"
    if provider(context, instance.provider).bills and (
        offer is None or context.now_ms() - offer.seen_ms > OFFER_AGE_MS
    ):
        return STALE
    return ""


def _rent_alone(context: Context, claim: Claim, instance: Instance) -> None:
    """One create at a time for each account: a second one within seconds would only be turned away."""
    market = provider(context, instance.provider)
    role = f"create:{instance.provider}"
    if market.bills and not roles.take(context.sessions, role, claim.token, context.now_ms(), CREATE_HOLD_MS):
        claim.release(wake_in_s=2)
        return
    try:
        _rent(context, claim, instance, market)
    finally:
        if market.bills:
            roles.resign(context.sessions, role, claim.token)


def _rent(context: Context, claim: Claim, instance: Instance, market: Provider) -> None:
    token = new_bootstrap_token()
    with transaction(context) as session:
        mine = claim.mine(session)
        if not isinstance(mine, Instance):
            return
        mine.rent_sent_ms, mine.bootstrap_sha256 = context.now_ms(), sha256_of(token)
        hard_deadline_s = _hard_deadline_s(context, session.get_one(Run, mine.run_id), mine)
    order = Order(
        instance.offer_id,
        instance.label,
        reach.variables(context.settings, token, hard_deadline_s),
        image=instance.image_expected,
        disk_gb=instance.disk_gb,
        bid_dollars_per_hour=instance.bid_dollars_per_hour,
    )
    _rented(context, claim, market.rent(order), "rented")


def _hard_deadline_s(context: Context, run: Run, instance: Instance) -> float:
    """Seconds after its start at which the machine begins to end itself, whatever else fails: what is held for it
    lasts until it has packed its evidence and is destroyed, and no longer."""
    lasts_s = float(run.max_duration_s + tail_s(context.settings, run.lease_s))
    if instance.dollars_per_hour > 0:
        lasts_s = min(lasts_s, instance.reserved_dollars / instance.dollars_per_hour * 3600)
    ending_s = tail_s(context.settings, 0)
    return max(float(run.lease_s), lasts_s - ending_s)


def _rented(context: Context, claim: Claim, provider_id: str, how: str, *, stopped: str = "") -> None:
    """There is a machine: write down its id. With `stopped`, one that was never started and is not wanted."""
    now = context.now_ms()
    with transaction(context) as session:
        instance = claim.mine(session)
        if not isinstance(instance, Instance):
            return
        run = session.get(Run, instance.run_id)
        values = {"provider_id": provider_id, "rented_ms": instance.rent_sent_ms or now, "moved_ms": now}
        if not transition(
            session,
            instance,
            RENTING,
            LOADING,
            reason=how,
            actor="deploy",
            now_ms=now,
            token=claim.token,
            values=values,
        ):
            return
        # The offer that was rented is on the market no more, whatever the last search says.
        rented = (Offer.provider == instance.provider, Offer.offer_id == instance.offer_id)
        session.execute(update(Offer).where(*rented, Offer.gone_ms.is_(None)).values(gone_ms=now))
        if stopped:
            instance.log_ticket = {"absent": "it was never started"}
            leave(context, session, instance, stopped, "deploy")
        elif run is None or run.state != ACTIVE:
            to_sealing(context, session, instance, "the run ended while the machine was being rented", "deploy")
        name = instance.provider
    scan.market_changed(context, name)


def _resolve_doubt(context: Context, claim: Claim, instance: Instance) -> None:
    """A create was sent and its answer is not known: only the label decides."""
    sent, absent = instance.rent_sent_ms or 0, instance.absent_ms
    after = sent if absent is None else absent + APART_MS - 1
    seen = listing.read(context, instance.provider, after_ms=after)
    found = listed(seen, instance)
    if found is not None:
        _rented(context, claim, found.provider_id, "found by its label after a doubtful create")
        return
    if not seen.complete:
        claim.release(wake_in_s=2)
        return
    lag_ms = REMOTE_LAG_MS if provider(context, instance.provider).remote else 0
    with transaction(context) as session:
        mine = claim.mine(session)
        if not isinstance(mine, Instance):
            return
        mine.absent_lists, mine.absent_ms = mine.absent_lists + 1, seen.begun_ms
        proven = mine.absent_lists >= 2 and seen.begun_ms - sent >= lag_ms
    if proven:
        _not_rented(context, claim, "two complete lists show nothing under our label")
    else:
        claim.release(wake_in_s=APART_MS / 1000)


def _not_rented(context: Context, claim: Claim, reason: str, final: bool = False) -> None:
    now = context.now_ms()
    with transaction(context) as session:
        instance = claim.mine(session)
        if not isinstance(instance, Instance):
            return
        if not transition(
            session, instance, RENTING, NOT_RENTED, reason=reason, actor="deploy", now_ms=now, token=claim.token
        ):
            return
        if reason.startswith("offer gone"):
            gone = (Offer.provider == instance.provider, Offer.offer_id == instance.offer_id)
            session.execute(update(Offer).where(*gone).values(gone_ms=now))
        _next(session, instance, reason, now, final)


def _next(session: Session, instance: Instance, reason: str, now: int, final: bool) -> None:
    """The run goes on to another offer, or waits for money, or ends where the provider's no is final."""
    run = session.get(Run, instance.run_id) if instance.run_id else None
    if run is None or run.state != ACTIVE:
        return
    broke = reason.startswith(NO_CREDIT)
    if broke or reason == STALE:
        run.rentals -= 1  # no offer was tried
    if final or (broke and now - (_broke_since(session, run.id) or now) > NO_CREDIT_PATIENCE_MS):
        conclude(session, run, ACTIVE, "failed", reason=reason, actor="deploy", now_ms=now)
    elif broke:
        run.stage, run.wake_at_ms = f"waits: {reason}"[:200], now + NO_CREDIT_AGAIN_MS
    else:
        run.stage = "looking for another offer"
        wake(session, run, now)


def _broke_since(session: Session, run_id: str) -> int | None:
    """When the provider first said that the account lacks money for this run."""
    first = select(func.min(Instance.created_ms)).where(
        Instance.run_id == run_id, Instance.state == NOT_RENTED, Instance.reason.startswith(NO_CREDIT)
    )
    return session.scalar(first)
