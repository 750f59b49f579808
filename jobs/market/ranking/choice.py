"""The order in which offers are tried: by expected dollars for a valid proof, less what trying them teaches.

An offer's rental costs its price while it boots, fetches the key, proves and is sealed, and its bytes. It may come to
nothing, or (where the run has a minimum) prove too slowly: then another one is paid for. With the chance p that an
attempt is good, the expected dollars of a run are

    run + ((1 - p) / p) * attempt in vain

What is learned is worth something when more runs come: by how much the best price is expected to fall once this machine
was measured (the knowledge gradient: Frazier, Powell & Dayanik, SIAM J. Control Optim. 47, 2008; for a log-normal price
it is the formula of Black & Scholes), times the runs ahead. So a machine that is known to be good is left for one that
may be better only as long as that pays, and of near equals the one that teaches most comes first. (A machine may be
gone when the next run comes, but what it taught of its class is not: in simulated seasons a tenth of the runs ahead, or
four times as many, make worse choices.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sqlalchemy.orm import Session

from jobs.domain import sequential
from jobs.domain.market_models import Offer
from jobs.domain.models import Input, Run
from jobs.market.accrual import traffic_of
from jobs.market.prices import bid_for, price_of
from jobs.market.ranking import knowledge as known
from jobs.market.ranking.failure import Failures
from jobs.market.ranking.knowledge import Knowledge
from jobs.market.ranking.normal import cdf
from jobs.market.ranking.outlook import Outlook, outlook
from jobs.market.ranking.refusals import refusals
from jobs.market.ranking.stages import Stages
from jobs.market.ranking.work import Advertised, Work, advertised, work_for

if TYPE_CHECKING:
    from jobs.context import Context

Floats = npt.NDArray[np.float64]

SEALING_S = 20.0
FAILING_S = 420.0
"""What a machine that comes to nothing is paid for before it is given up: most boot, and stand still then."""
HOPELESS = 0.02
"""Under this chance of reaching the minimum, nothing is rented for it."""


@dataclass(frozen=True)
class Ranked:
    """An offer and what is expected of it. `low` and `high` bound 90 %; `chance` is that of reaching the minimum.

    `dollars_per_proof` counts what failed attempts cost, bytes, disk and the time before the first proof.
    `cost_to_find_out_dollars` is what a rental costs until its rate is decided. `skipped` says why the offer is not to
    be taken, '' where it is; `for_now` is True where that passes by itself.
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


@dataclass(frozen=True)
class _Costs:
    """Dollars of each offer: for an hour, for a proof with its 90 % interval, to find out, and for an all-in hour."""

    hourly: Floats
    per_proof: Floats
    low: Floats
    high: Floats
    find_out: Floats
    all_in: Floats
    chance: Floats
    failing: Floats


def rank(knowledge: Knowledge, work: Work, offers: Sequence[Offer], now_ms: int) -> list[Ranked]:
    """`offers`, best first; what is skipped comes last, cheapest first. Pure, and the same for the same arguments."""
    if not offers:
        return []
    told = [advertised(offer) for offer in offers]
    ahead = outlook(knowledge.measurements, work.name, told, now_ms)
    refusal, reasons = refusals(knowledge, work, now_ms), []
    hourly, traffic = np.zeros(len(offers)), np.zeros(len(offers))
    for i, offer in enumerate(told):
        bid, no_bid = bid_for(work, offer, work.disk_gb)
        price = price_of(offer, work.disk_gb, bid, work.traffic)
        hourly[i], traffic[i] = price.dollars_per_hour, price.traffic_dollars
        why, for_now = (no_bid, False) if no_bid else refusal(offer)
        limit = work.max_dollars_per_hour
        if not why and limit is not None and hourly[i] > limit + 1e-9:
            why = f"costs ${hourly[i]:.4g}/h, over the limit of ${limit:.4g}/h"
        reasons.append((why, for_now))
    costs = _costs(knowledge, work, told, ahead, hourly, traffic, now_ms)
    if work.min_proofs_per_hour is not None and not work.named:
        reasons = [
            (why, for_now) if why or costs.chance[i] >= HOPELESS else (_hopeless(work, costs, i), False)
            for i, (why, for_now) in enumerate(reasons)
        ]
    open_ = np.array([not why for why, _ in reasons])
    score = costs.per_proof - _worth(costs.per_proof, ahead, open_) * knowledge.runs_ahead
    order = sorted(range(len(offers)), key=lambda i: (not open_[i], score[i] if open_[i] else hourly[i], i))
    told_of = _Words(work, told, ahead, costs)
    return [
        Ranked(
            offers[i],
            told_of.rate[i],
            told_of.low[i],
            told_of.high[i],
            told_of.per_proof[i],
            told_of.dollars_low[i],
            told_of.dollars_high[i],
            told_of.chance[i],
            told_of.find_out[i],
            told_of.all_in[i],
            reasons[i][0],
            told_of.why(i),
            reasons[i][1],
        )
        for i in order
    ]


def _costs(
    knowledge: Knowledge,
    work: Work,
    offers: Sequence[Advertised],
    ahead: Outlook,
    hourly: Floats,
    traffic: Floats,
    now_ms: int,
) -> _Costs:
    stages, failures = Stages(knowledge.measurements), Failures(knowledge.rentals, knowledge.marks, now_ms)
    ready_s = np.array([stages.seconds((o.provider, o.machine_id), o.facts, work.key_bytes) for o in offers])
    failing = np.array([failures.chance(o) for o in offers])
    fixed = hourly * (ready_s + SEALING_S) / 3600 + traffic
    cast, minimum = ahead.forecast, work.min_proofs_per_hour
    chance = cast.chance(minimum) if minimum is not None else np.ones(len(offers))
    good = np.maximum((1 - failing) * chance, 1e-9)
    run_hours = cast.hours(minimum) * work.proofs
    decided = sequential.expected_fraction(cast.center, cast.spread, minimum, work.proofs)
    find_out = fixed + hourly * np.minimum(cast.hours(None) * work.proofs * decided, work.duration_s / 3600 or np.inf)
    in_vain = failing * (hourly * FAILING_S / 3600 + traffic) + (1 - failing) * (1 - chance) * find_out
    retries = in_vain / good
    run = fixed + hourly * run_hours
    proofs = max(work.proofs, 1)
    return _Costs(
        hourly=hourly,
        per_proof=(run + retries) / proofs,
        low=(fixed + retries) / proofs + hourly / cast.high,
        high=(fixed + retries) / proofs + hourly / cast.low,
        find_out=find_out,
        all_in=run / ((ready_s + SEALING_S) / 3600 + run_hours),
        chance=chance,
        failing=failing,
    )


def _worth(per_proof: Floats, ahead: Outlook, open_: npt.NDArray[np.bool_]) -> Floats:
    """Dollars a proof by which the best offer is expected to get cheaper once each offer was measured."""
    if open_.sum() < 2:
        return np.zeros(len(per_proof))
    prices = np.where(open_, per_proof, np.inf)
    first, second = np.partition(prices, 1)[:2]
    rival = np.where(prices == first, second, first)
    sd = np.maximum(ahead.forecast.moved, 1e-6)
    d = np.log(rival / per_proof) / sd + sd / 2
    put = rival * cdf(d) - per_proof * cdf(d - sd)
    worth: Floats = np.maximum(np.minimum(per_proof, rival) - rival + put, 0.0)
    return worth


def _hopeless(work: Work, costs: _Costs, i: int) -> str:
    return (
        f"reaches {_figure(work.min_proofs_per_hour or 0.0)}/h with a chance of {costs.chance[i]:.1%}; "
        f"to find out costs {_dollars(costs.find_out[i])}"
    )


def _figure(rate: float) -> str:
    """Two or three digits that mean something, never an exponent."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _dollars(amount: float) -> str:
    """Three digits that mean something, never an exponent."""
    return f"${float(f'{amount:.3g}'):.12f}".rstrip("0").rstrip(".")


def _times(n: int) -> str:
    return {1: "once", 2: "twice"}.get(n, f"{n} times")


class _Words:
    """The figures as Python's own numbers, and each offer's line for the operator."""

    def __init__(self, work: Work, told: Sequence[Advertised], ahead: Outlook, costs: _Costs):
        self._work, self._told = work, told
        cast = ahead.forecast
        self.rate, self.low, self.high = np.exp(cast.center).tolist(), cast.low.tolist(), cast.high.tolist()
        self.per_proof, self.all_in = costs.per_proof.tolist(), costs.all_in.tolist()
        self.dollars_low, self.dollars_high = costs.low.tolist(), costs.high.tolist()
        self.chance, self.find_out = costs.chance.tolist(), costs.find_out.tolist()
        self._failing = costs.failing.tolist()
        self._seen = list(zip(ahead.on_machine.tolist(), ahead.in_class.tolist(), ahead.of_model.tolist(), strict=True))

    def why(self, i: int) -> str:
        rate, low, high, minimum = self.rate[i], self.low[i], self.high[i], self._work.min_proofs_per_hour
        spread = f" ± {_figure((high - low) / 2)}" if high < 3 * low else f" ({_figure(low)} to {_figure(high)})"
        money = f"{_dollars(self.per_proof[i])}/proof at {_dollars(self.all_in[i])}/h all in"
        text = f"expected {_figure(rate)}{spread} proofs/h, {money}"
        if minimum is not None:
            text += f"; chance to reach {_figure(minimum)}/h {self.chance[i]:.0%}"
        if self._failing[i] >= 0.1:
            text += f"; {self._failing[i]:.0%} of such rentals come to nothing"
        return f"{text}; {self._basis(i)}"

    def _basis(self, i: int) -> str:
        (machine, alike, model), offer = self._seen[i], self._told[i]
        if machine:
            return f"measured {_times(machine)} on this machine"
        if alike:
            return f"measured {_times(alike)} on machines of its class"
        what = offer.gpu_model if offer.num_gpus else offer.cpu_model or "machine of its kind"
        if model:
            return f"{what} was measured {_times(model)}, none of its class"
        return f"no {what} was measured at this work: by its specs"


def rank_offers(
    context: Context, session: Session, run: Run, offers: Sequence[Offer], key: Input | None = None
) -> list[Ranked]:
    """`offers` in the order in which `run` should try them, each with its forecast and why.

    `key` stands in for the run's own where that is not made yet.
    """
    now = context.now_ms()
    if run.zkey_id:
        key = session.get(Input, run.zkey_id)
    work = work_for(context.settings, run, key, traffic_of(session, run))
    return rank(known.read(session, work, run.id, now), work, offers, now)
