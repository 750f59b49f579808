"""What a request may cost, before anything is asked for: the same sums as the reservation of the rental itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from jobs.domain.market_models import Cap, Offer
from jobs.domain.models import Input
from jobs.market.budget import USER, cap_words
from jobs.market.prices import Price, Traffic, bid_for, hold_dollars, least_dollars, money, price_of, priced

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from jobs.context import Context
    from jobs.domain.runs import RunRequest

KEY_BYTES_A_CONSTRAINT, WITNESS_BYTES_A_CONSTRAINT = 2048, 64
"""Bounds for built-in circuits, until their key is made: at 2^12 keys take up to 982 bytes, witnesses 32."""


@dataclass(frozen=True)
class Quote:
    """What a run may cost. `reserve_dollars` includes traffic, and the tail in which evidence is sealed.

    None: no price is known.
    """

    dollars_per_hour: float | None
    reserve_dollars: float | None
    text: str


def quote(context: Context, request: RunRequest) -> Quote:
    """The most that `request` can cost, from its offer or from its own price limit, its bytes included."""
    with context.sessions() as session:
        price, wrong = _price(context, session, request)
        cap = session.get(Cap, "run")
    limits = [limit for limit in (request.max_dollars, cap.dollars if cap else None) if limit is not None]
    most = min(limits, default=None)
    if price is None:
        return Quote(None, most, wrong or "set a price limit to see what this may cost")
    lease_s = request.lease_s or context.settings.lease_s
    held = hold_dollars(context.settings, price, request.max_duration_s, lease_s, most)
    return Quote(price.dollars_per_hour, held, f"at most ${held:,.2f}, at ${price.dollars_per_hour:,.4g}/h")


def refused(context: Context, session: Session, request: RunRequest, actor: str) -> dict[str, str]:
    """What is wrong with the money of `request`, by field; empty where nothing is."""
    if request.bid_dollars_per_hour is not None and not request.interruptible:
        return {"bid_dollars_per_hour": "only an interruptible machine is bid for; ask for one, or leave the bid out"}
    if request.offer_id and session.get(Offer, (request.provider, request.offer_id)) is None:
        return {"offer_id": "this offer is gone; scan again and choose another"}
    price, wrong = _price(context, session, request)
    if wrong:
        return {"bid_dollars_per_hour" if request.bid_dollars_per_hour else "interruptible": f"the offer {wrong}"}
    if price is None:
        return {}
    rate, limit = price.dollars_per_hour, request.max_dollars_per_hour
    if limit is not None and rate > limit + 1e-9:
        return {"max_dollars_per_hour": f"the offer costs ${rate:.4g}/h; raise the limit or choose another"}
    return _over_a_limit(context, session, request, price, actor)


def _over_a_limit(context: Context, session: Session, request: RunRequest, price: Price, actor: str) -> dict[str, str]:
    lease_s = request.lease_s or context.settings.lease_s
    least = least_dollars(context.settings, price, lease_s)
    if request.max_dollars is not None and 0 < least >= request.max_dollars:
        return {"max_dollars": f"sealing the evidence and traffic alone may cost {money(least)}; raise it above that"}
    caps = {cap.scope: cap.dollars for cap in session.scalars(select(Cap))}
    most = min((m for m in (request.max_dollars, caps.get("run")) if m is not None), default=None)
    held = hold_dollars(context.settings, price, request.max_duration_s, lease_s, most)
    if "run" in caps and 0 < least >= caps["run"]:
        return {"max_dollars": f"the cap on a run is {money(caps['run'])}, and ending one may cost {money(least)}"}
    for scope in ("day", "month", USER + actor):
        if scope in caps and held > caps[scope]:
            return {
                "max_dollars": f"{money(held)} would be held, and {cap_words(scope)} is {money(caps[scope])}; lower it"
            }
    return {}


def _price(context: Context, session: Session, request: RunRequest) -> tuple[Price | None, str]:
    """The price of the offer asked for, or the dearest that the request allows; or (None, why there is none)."""
    traffic, disk_gb = _traffic(session, request), context.settings.rent_disk_gb
    offer = session.get(Offer, (request.provider, request.offer_id)) if request.offer_id else None
    if offer is not None:
        bid, wrong = bid_for(request, offer, disk_gb)
        return (None, wrong) if wrong else (price_of(offer, disk_gb, bid, traffic), "")
    limit = request.max_dollars_per_hour
    if limit is None:
        return None, ""
    down, up = (func.max(Offer.facts[name].as_float()) for name in ("dollars_per_gb_down", "dollars_per_gb_up"))
    fits = (Offer.provider == request.provider, Offer.gone_ms.is_(None), Offer.dollars_per_hour <= limit)
    dearest = session.execute(select(down, up).where(*fits)).one()
    return priced(limit, 0.0, dearest[0] or 0.0, dearest[1] or 0.0, traffic), ""


def _traffic(session: Session, request: RunRequest) -> Traffic:
    """As `accrual.traffic_of`, from what is known before the key and the witnesses of a built-in circuit are made."""
    ids = [i for i in (request.zkey_id, *set(request.witness_ids)) if i]
    if request.circuit is None:
        sizes = dict(session.execute(select(Input.id, Input.size_bytes).where(Input.id.in_(ids))).all())
        return Traffic(sizes.get(request.zkey_id or "", 0) + 2 * sum(sizes.get(i, 0) for i in request.witness_ids))
    size = int(request.circuit.split("/")[1])
    key = session.scalar(select(Input.size_bytes).where(Input.circuit == request.circuit))
    witnesses = WITNESS_BYTES_A_CONSTRAINT * size * (2 * request.proofs + 1)
    return Traffic((key or KEY_BYTES_A_CONSTRAINT * size) + witnesses)
