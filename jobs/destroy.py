"""`destroy`: end the rental, and believe it only when two complete lists, seconds apart, no longer show it."""

from __future__ import annotations

from jobs.context import Context, current
from jobs.domain.instances import listed, spent_dollars
from jobs.domain.models import Instance
from jobs.domain.states import DESTROYED, DESTROYING, transition
from jobs.domain.work import Claim, record, take, transaction
from jobs.market import provider
from jobs.market.providers.base import ProviderUnavailable

APART_MS = 1_500


def destroy(instance_id: str, attempt: int) -> None:
    """The RQ job of an instance in `destroying`; it comes back until the absence is proven."""
    del attempt
    context = current()
    held = take(context, Instance, instance_id, (DESTROYING,))
    if held is None:
        return
    claim, instance = held
    with claim.released_on_error():
        try:
            _step(context, claim, instance)
        except ProviderUnavailable as error:
            with transaction(context) as session:
                record(
                    session,
                    context.now_ms(),
                    "destroy",
                    "provider.unavailable",
                    str(error),
                    run_id=instance.run_id,
                    instance_id=instance.id,
                )
            claim.release(wake_in_s=5)


def _step(context: Context, claim: Claim, instance: Instance) -> None:
    market = provider(context, instance.provider)
    listing = market.list()
    ours = listed(listing, instance)
    if ours is not None or instance.delete_sent_ms is None:
        provider_id = ours.provider_id if ours else instance.provider_id
        if provider_id is not None:
            market.destroy(provider_id)
        _count(context, claim, absent=0, sent=True)
        claim.release(wake_in_s=APART_MS / 1000)
        return
    if not listing.complete:
        claim.release(wake_in_s=2)
        return
    apart = instance.absent_ms is None or context.now_ms() - instance.absent_ms >= APART_MS
    _count(context, claim, absent=instance.absent_lists + 1 if apart else instance.absent_lists)
    if _destroyed(context, claim):
        # What was rented can be rented again: the list of offers should say so at once.
        context.enqueue("scan_offers", instance.provider, context.now_ms())
    else:
        claim.release(wake_in_s=APART_MS / 1000)


def _count(context: Context, claim: Claim, *, absent: int, sent: bool = False) -> None:
    now = context.now_ms()
    with transaction(context) as session:
        mine = claim.mine(session)
        if not isinstance(mine, Instance):
            return
        if sent:
            mine.delete_sent_ms = now
        if absent != mine.absent_lists or sent:
            mine.absent_ms = None if absent == 0 else now
            mine.absent_lists = absent


def _destroyed(context: Context, claim: Claim) -> bool:
    """True once the transition's own guard (our DELETE, two complete lists without it) lets it through."""
    now = context.now_ms()
    with transaction(context) as session:
        mine = claim.mine(session)
        if not isinstance(mine, Instance):
            return True
        spent = spent_dollars(mine, now)
        return transition(
            session,
            mine,
            DESTROYING,
            DESTROYED,
            reason="gone from two complete lists",
            actor="destroy",
            now_ms=now,
            token=claim.token,
            values={"spent_dollars": spent, "token_sha256": None},
        )
