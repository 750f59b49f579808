"""`deploy`: rent what was intended, once.

The intent (the instance's row and label) is committed before the provider is called, and so is the fact that
the call was sent. After any doubt the label is looked up; a create is never blindly sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.context import Context, current
from jobs.domain.agents import sha256_of
from jobs.domain.instances import fail
from jobs.domain.models import Instance, Run
from jobs.domain.placing import new_bootstrap_token
from jobs.domain.states import ACTIVE, LOADING, NOT_RENTED, RENTING, conclude, transition
from jobs.domain.work import Claim, record, take, transaction, wake
from jobs.market import provider
from jobs.market.providers.base import OfferGone, Order, ProviderUnavailable, RentalRefused

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from jobs.market.providers.base import ProviderInstance

APART_MS = 2_000


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
            elif _still_wanted(context, instance):
                _rent(context, claim, instance)
            else:
                _not_rented(context, claim, "the run ended before anything was rented")
        except OfferGone as error:
            _not_rented(context, claim, f"offer gone: {error}")
        except RentalRefused as error:
            _not_rented(context, claim, f"refused by the provider: {error}", final=True)
        except ProviderUnavailable as error:
            _note(context, claim, str(error))
            claim.release(wake_in_s=3)


def _still_wanted(context: Context, instance: Instance) -> bool:
    with context.sessions() as session:
        run = session.get(Run, instance.run_id) if instance.run_id else None
        return run is not None and run.state == ACTIVE


def _rent(context: Context, claim: Claim, instance: Instance) -> None:
    token = new_bootstrap_token()
    with transaction(context) as session:
        mine = claim.mine(session)
        if not isinstance(mine, Instance):
            return
        mine.rent_sent_ms, mine.bootstrap_sha256 = context.now_ms(), sha256_of(token)
    env = {
        "PROVEFLEET_AGENT_URL": context.settings.public_url or f"http://{context.settings.agent_bind}",
        "PROVEFLEET_BOOTSTRAP_TOKEN": token,
    }
    order = Order(
        instance.offer_id,
        instance.label,
        env,
        image=instance.image_expected,
        disk_gb=instance.disk_gb,
        bid_dollars_per_hour=instance.bid_dollars_per_hour,
    )
    provider_id = provider(context, instance.provider).rent(order)
    _rented(context, claim, provider_id, "rented")


def _rented(context: Context, claim: Claim, provider_id: str, how: str) -> None:
    now = context.now_ms()
    with transaction(context) as session:
        instance = claim.mine(session)
        if not isinstance(instance, Instance):
            return
        run = session.get(Run, instance.run_id)
        values = {"provider_id": provider_id, "rented_ms": instance.rent_sent_ms or now, "moved_ms": now}
        moved = transition(
            session,
            instance,
            RENTING,
            LOADING,
            reason=how,
            actor="deploy",
            now_ms=now,
            token=claim.token,
            values=values,
        )
        if moved and (run is None or run.state != ACTIVE):
            fail(context, session, instance, "the run ended while the machine was being rented", "deploy")
    # What is rented has left the market: the list of offers should say so at once.
    context.enqueue("scan_offers", instance.provider, now)


def _find(context: Context, instance: Instance) -> tuple[bool, ProviderInstance | None]:
    """(complete, instance under our label) as the provider lists it."""
    listing = provider(context, instance.provider).list()
    return listing.complete, next((i for i in listing.instances if i.label == instance.label), None)


def _resolve_doubt(context: Context, claim: Claim, instance: Instance) -> None:
    """A create was sent and its answer is not known: only the label decides."""
    complete, found = _find(context, instance)
    if found is not None:
        _rented(context, claim, found.provider_id, "found by its label after a doubtful create")
        return
    if not complete:
        claim.release(wake_in_s=2)
        return
    now = context.now_ms()
    with transaction(context) as session:
        mine = claim.mine(session)
        if not isinstance(mine, Instance):
            return
        if mine.absent_ms is None or now - mine.absent_ms >= APART_MS:
            mine.absent_lists, mine.absent_ms = mine.absent_lists + 1, now
        proven = mine.absent_lists >= 2
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
        _next(session, instance, reason, now, final)


def _next(session: Session, instance: Instance, reason: str, now: int, final: bool) -> None:
    """The run goes on to another offer, or ends where the provider's no is final."""
    run = session.get(Run, instance.run_id) if instance.run_id else None
    if run is None or run.state != ACTIVE:
        return
    if final:
        conclude(session, run, ACTIVE, "failed", reason=reason, actor="deploy", now_ms=now)
    else:
        run.stage = "looking for another offer"
        wake(session, run, now)


def _note(context: Context, claim: Claim, text: str) -> None:
    with transaction(context) as session:
        instance = claim.mine(session)
        if isinstance(instance, Instance) and instance.provider_status != text[:64]:
            instance.provider_status = text[:64]
            record(
                session,
                context.now_ms(),
                "deploy",
                "provider.unavailable",
                text,
                run_id=instance.run_id,
                instance_id=instance.id,
            )
