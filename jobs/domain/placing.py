"""Choosing an offer, and writing down the intent to rent it: reservation and instance in one transaction.

A run has at most one live instance: this is the only place that makes one, under the run's claim, and the
unique indexes on live offers and machines keep two runs off one. A run that goes on to another machine does so within
what was held for its first one: that is what its operator was told it may cost.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from jobs.domain.controller import controller_id
from jobs.domain.instances import label_of, stage_deadline_s
from jobs.domain.market_models import Offer
from jobs.domain.models import Instance, Proof, Run
from jobs.domain.states import ACTIVE, ENDED, QUEUED, RENTING, conclude
from jobs.domain.work import Claim, record, transaction, wake
from jobs.market import budget, prices, provider, ranking, reach
from jobs.market.accrual import traffic_of

if TYPE_CHECKING:
    from jobs.context import Context
    from jobs.market.prices import Price, Traffic
    from jobs.market.ranking import Ranked

MAX_OFFERS = 8
"""How many offers a run may come too late for, or wear out (`instances.MAX_MACHINES`), before it ends."""


SHOWN = 10
"""Of the offers that were passed over, so many are kept with their reasons in the event of the rental."""


@dataclass(frozen=True)
class Placed:
    """`reason` is '' when an instance was written down; else why not, and whether waiting can help (`final` False).

    `passed_over`: (machine, why) of the offers that are not for this run.
    """

    reason: str = ""
    final: bool = False
    passed_over: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Choice:
    """An offer that fits, as it would be rented: at this price, with this bid, for at most `hold` dollars."""

    ranked: Ranked
    price: Price
    bid: float | None
    hold: float

    @property
    def offer(self) -> Offer:
        return self.ranked.offer


def _chosen(
    context: Context, run: Run, ranked: Ranked, traffic: Traffic, left: float | None
) -> tuple[Choice | None, str]:
    """The offer as `run` would rent it, for at most `left` dollars; or why it is not for this run."""
    if ranked.skipped:
        return None, ranked.skipped
    bid, why = prices.bid_for(run, ranked.offer, context.settings.rent_disk_gb)
    if why:
        return None, why
    price = prices.price_of(ranked.offer, context.settings.rent_disk_gb, bid, traffic)
    rate, limit = price.dollars_per_hour, run.max_dollars_per_hour
    if limit is not None and rate > limit + 1e-9:
        return None, f"costs ${rate:.4g}/h, over the limit of ${limit:.4g}/h"
    least = prices.least_dollars(context.settings, price, run.lease_s)
    if left is not None and 0 < least >= left:
        return None, f"sealing the evidence alone could cost ${least:.4g}, and no more than ${left:.4g} may be spent"
    hold = prices.hold_dollars(context.settings, price, run.max_duration_s, run.lease_s, left)
    return Choice(ranked, price, bid, hold), ""


def _candidates(context: Context, session: Session, run: Run) -> tuple[list[Choice], Placed]:
    """What this run may rent, best first; or why there is nothing."""
    if why := reach.refusal(context.settings, provider(context, run.provider)):
        return [], Placed(why, final=True)
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
    traffic, left = traffic_of(session, run), _left_dollars(context, session, run)
    ranked = ranking.rank_offers(context, session, run, offers)
    choices = [_chosen(context, run, one, traffic, left) for one in ranked]
    fitting = [choice for choice, _ in choices if choice is not None]
    if not fitting:
        return [], _why_none([(one.for_now, why) for one, (_, why) in zip(ranked, choices, strict=True)])
    free = [choice for choice in fitting if choice.offer.offer_id not in taken]
    passed_over = tuple((one.offer.machine_id, why) for one, (_, why) in zip(ranked, choices, strict=True) if why)
    return free, Placed("" if free else "waiting for a free offer", passed_over=passed_over)


def _why_none(skipped: list[tuple[bool, str]]) -> Placed:
    """Wait where something passes by itself (a machine works for another run); else the first reason ends the run."""
    passing = [why for for_now, why in skipped if for_now]
    if passing:
        return Placed(f"waiting for a free offer: {passing[0]}")
    others = f" (and {len(skipped) - 1} more, each for its reason)" if len(skipped) > 1 else ""
    return Placed(f"no offer fits: the first {skipped[0][1]}{others}", final=True)


def _left_dollars(context: Context, session: Session, run: Run) -> float | None:
    """What may be held for the run's next machine; None for the first one of a run without limits."""
    left = budget.left_dollars(context, session, run)
    mine = select(Instance).where(Instance.run_id == run.id, Instance.rented_ms.is_not(None))
    before = list(session.scalars(mine.order_by(Instance.created_ms)))
    if not before:
        return left
    rest = before[0].reserved_dollars - sum(one.spent_dollars for one in before)
    return rest if left is None else min(left, rest)


def place(context: Context, claim: Claim) -> Placed:
    """Write down the intent to rent the best offer. The claim ends with the transaction that does."""
    now = context.now_ms()
    try:
        with transaction(context) as session:
            run = claim.mine(session)
            if not isinstance(run, Run) or run.state not in (QUEUED, ACTIVE):
                return Placed()
            if run.rentals >= MAX_OFFERS:
                why = f"{run.rentals} offers were tried, and none came to anything; scan and try again"
                return Placed(why, final=True)
            choices, why_not = _candidates(context, session, run)
            if not choices:
                return why_not
            # From here on, one placement at a time: what is left of caps and credit can't be taken twice.
            if why := budget.refusal(context, session, run, choices[0].hold):
                return Placed(why)
            instance = _intend(context, session, run, choices[0], why_not.passed_over, now)
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


def _intend(
    context: Context, session: Session, run: Run, choice: Choice, passed_over: tuple[tuple[str, str], ...], now: int
) -> Instance:
    instance_id, offer, rate = context.new_id(), choice.offer, choice.price.dollars_per_hour
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
        stage="loading",
        stage_ms=now,
        stage_deadline_ms=deadline,
        moved_ms=now,
        round=session.scalar(select(func.max(Proof.round)).where(Proof.run_id == run.id)) or 1,
        dollars_per_hour=rate,
        price=choice.price.to_json(),
        bid_dollars_per_hour=choice.bid,
        disk_gb=context.settings.rent_disk_gb,
        forecast=choice.ranked.to_json(),
        reserved_dollars=choice.hold,
        image_expected=context.settings.payload_image,
        created_ms=now,
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
        f"offer {offer.offer_id} at ${rate:.4g}/h, ${choice.hold:.4f} reserved",
        run_id=run.id,
        instance_id=instance_id,
        data={
            "offer": offer.offer_id,
            "machine": offer.machine_id,
            "passed_over": len(passed_over),
            "passed_over_first": [[machine, why[:200]] for machine, why in passed_over[:SHOWN]],
        },
    )
    return instance


def new_bootstrap_token() -> str:
    return secrets.token_urlsafe(32)
