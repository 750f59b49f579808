"""How good forecasts and choices are on a simulated market: a little in the tests, more in `make bench-market`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jobs.market.ranking import Work, rank
from jobs.market.ranking.knowledge import Knowledge
from tests.jobs.market.fleet import NOW, WORK, Fleet, Kind, all_measured, shuffled


@dataclass(frozen=True)
class Calibration:
    """`coverage` of the 90 % intervals, and the median error of the forecast where three of its class were measured."""

    coverage: float
    median_error: float


def calibration(kind: Kind, measured: int, seeds: range, machines: int = 160) -> Calibration:
    """Of fleets never seen: `measured` machines are, the others are forecast and then rented."""
    inside, errors = [], []
    for seed in seeds:
        fleet = Fleet(kind, seed, machines)
        order = shuffled(fleet, machines)
        seen, held = order[:measured], order[measured:]
        knowledge = Knowledge(measurements=all_measured(fleet, seen))
        for one in rank(knowledge, Work(WORK), [fleet.offers[i] for i in held], NOW):
            rate = fleet.rate(int(one.offer.machine_id))
            inside.append(one.low <= rate <= one.high)
            if " on machines of its class" in one.why and " once " not in one.why and " twice " not in one.why:
                errors.append(abs(one.proofs_per_hour / rate - 1))
    return Calibration(float(np.mean(inside)), float(np.median(errors)) if errors else float("nan"))


@dataclass(frozen=True)
class Season:
    """A season of runs on one market, in dollars a proof: ours, those of "cheapest $/h", and those of an oracle that
    knows every machine. `late`: how much dearer than the oracle's the pick is that we would make after `learning` runs
    and more, were nothing to be learned from it any more (1.0: none)."""

    ours: float
    cheapest: float
    oracle: float
    late: float


def season(kind: Kind, seed: int, runs: int = 30, learning: int = 20, proofs: int = 300, machines: int = 64) -> Season:
    """`runs` one after another; each finds three quarters of the machines on offer, and each rental is remembered."""
    fleet = Fleet(kind, seed, machines)
    measurements, ours, cheapest, oracle, late = [], [], [], [], []
    work = Work(WORK, proofs)
    for run in range(runs):
        there = shuffled(fleet, machines * 3 // 4)
        offers = [fleet.offers[i] for i in there]
        oracle.append(min(fleet.dollars_per_proof(i, proofs) for i in there))
        if run >= learning and (run - learning) % 5 == 0:
            last = rank(Knowledge(measurements, runs_ahead=0), work, offers, NOW)[0].offer
            late.append(fleet.dollars_per_proof(int(last.machine_id), proofs) / oracle[-1])
        best = rank(Knowledge(measurements, runs_ahead=min(max(run, 4), 20)), work, offers, NOW)[0].offer
        taken = int(best.machine_id)
        ours.append(fleet.dollars_per_proof(taken, proofs, fleet.rate(taken)))
        measurements.append(fleet.measured(taken))
        low = min(there, key=lambda i: fleet.offers[i].dollars_per_hour)
        cheapest.append(fleet.dollars_per_proof(low, proofs, fleet.rate(low)))
    return Season(*(float(np.mean(each)) for each in (ours, cheapest, oracle, late)))
