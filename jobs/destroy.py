"""`destroy`: end the rental, and believe it only when two complete lists, seconds apart, no longer show it.

The DELETE goes out first and needs no list; a list counts only if it was begun after the answer to it.
"""

from __future__ import annotations

from jobs import scan
from jobs.context import Context, current
from jobs.domain.instances import listed, note_unavailable
from jobs.domain.models import Instance
from jobs.domain.states import DESTROYED, DESTROYING, transition
from jobs.domain.work import Claim, take, transaction
from jobs.market import accrual, listing, provider
from jobs.market.providers.base import BeingListed, ProviderUnavailable

APART_MS = 1_500


def destroy(instance_id: str, attempt: int) -> None:
    """The RQ job of an instance in `destroying`; it comes back until the absence is proven."""
    del attempt
    context = current()
    held = take(context, Instance, instance_id, (DESTROYING,))
    if held is None:
        return
    claim, instance = held
    with claim.released_on_error(), claim.kept_alive():
        try:
            _step(context, claim, instance)
        except BeingListed:
            claim.release(wake_in_s=1)
        except ProviderUnavailable as error:
            note_unavailable(context, claim, "destroy", error)
            claim.release(wake_in_s=5)


def _step(context: Context, claim: Claim, instance: Instance) -> None:
    if instance.delete_sent_ms is None:
        if instance.provider_id is not None:
            provider(context, instance.provider).destroy(instance.provider_id)
        _count(context, claim, absent_lists=0, absent_ms=None, sent=True)
        claim.release(wake_in_s=APART_MS / 1000)
        return
    # A second list may say more than the first only when it was begun some time after it.
    after = instance.delete_sent_ms if instance.absent_ms is None else instance.absent_ms + APART_MS - 1
    seen = listing.read(context, instance.provider, after_ms=max(after, instance.delete_sent_ms))
    if (still := listed(seen, instance)) is not None:
        provider(context, instance.provider).destroy(still.provider_id)
        _count(context, claim, absent_lists=0, absent_ms=None, sent=True)
    elif seen.complete:
        _count(context, claim, absent_lists=instance.absent_lists + 1, absent_ms=seen.begun_ms)
    if _destroyed(context, claim):
        scan.market_changed(context, instance.provider)
    else:
        claim.release(wake_in_s=APART_MS / 1000)


def _count(context: Context, claim: Claim, *, absent_lists: int, absent_ms: int | None, sent: bool = False) -> None:
    with transaction(context) as session:
        mine = claim.mine(session)
        if not isinstance(mine, Instance):
            return
        mine.absent_lists, mine.absent_ms = absent_lists, absent_ms
        if sent:
            mine.delete_sent_ms = context.now_ms()


def _destroyed(context: Context, claim: Claim) -> bool:
    """True once the transition's own guard (our DELETE, two complete lists without it) lets it through."""
    now = context.now_ms()
    with transaction(context) as session:
        mine = claim.mine(session)
        if not isinstance(mine, Instance):
            return True
        accrual.accrue(session, mine, now)
        return transition(
            session,
            mine,
            DESTROYING,
            DESTROYED,
            reason="gone from two complete lists",
            actor="destroy",
            now_ms=now,
            token=claim.token,
            values={"token_sha256": None},
        )
