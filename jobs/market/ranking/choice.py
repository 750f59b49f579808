"""The order in which offers are tried, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from jobs.domain.models import Input, Mark, Offer, Run
from jobs.market import reputation
from jobs.market.ranking.work import Work, work_of

if TYPE_CHECKING:
    from jobs.context import Context


@dataclass(frozen=True)
class Ranked:
    """An offer and what is expected of it. `low` and `high` bound 90 %; `chance` is that of reaching the minimum.

    `skipped` says why it is not to be taken, '' where it is; `for_now` is True where that passes by itself.
    """

    offer: Offer
    proofs_per_hour: float
    low: float
    high: float
    dollars_per_proof: float
    dollars_low: float
    dollars_high: float
    chance: float
    cost_to_find_out_dollars: float
    all_in_dollars_per_hour: float
    skipped: str
    why: str
    for_now: bool = False

    def to_json(self) -> dict[str, Any]:
        """All but the offer itself: what an instance keeps as its `forecast`."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "offer"}


def rank(
    marks: dict[tuple[str, str], list[Mark]], work: Work, offers: Sequence[Offer], now_ms: int, named: bool = False
) -> list[Ranked]:
    """Cheapest first, skipped ones last."""
    ranked = [_ranked(marks, work, offer, named) for offer in offers]
    return sorted(ranked, key=lambda r: (bool(r.skipped), r.all_in_dollars_per_hour, r.offer.offer_id))


def _ranked(marks: dict[tuple[str, str], list[Mark]], work: Work, offer: Offer, named: bool) -> Ranked:
    price, skipped = offer.dollars_per_hour, ""
    bad = [m for m in marks.get((offer.provider, offer.machine_id), []) if m.kind != reputation.SLOW]
    if work.max_dollars_per_hour is not None and price > work.max_dollars_per_hour:
        skipped = f"costs ${price:.4g}/h, over the limit of ${work.max_dollars_per_hour:.4g}/h"
    elif bad and not named:
        skipped = f"machine is marked {bad[0].kind}: {bad[0].reason}"
    return Ranked(offer, 1.0, 0.1, 10.0, price, price / 10, price * 10, 0.5, price, price, skipped, f"${price:.4g}/h")


def rank_offers(context: Context, session: Session, run: Run, offers: Sequence[Offer]) -> list[Ranked]:
    """`offers` in the order in which `run` should try them, each with its forecast and why."""
    now = context.now_ms()
    key = session.get(Input, run.zkey_id) if run.zkey_id else None
    work = Work(work_of(run, key), run.proofs, run.min_proofs_per_hour, run.max_dollars_per_hour)
    return rank(reputation.marks_of(session, None, now), work, offers, now, named=run.offer_id is not None)
