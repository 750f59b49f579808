"""The chance that a rental comes to nothing: it never boots, can't be reached, or proves nothing valid.

Counts, shrunk level by level: what was seen of a machine is added to what its model, its host and the whole market make
likely, as pseudo-counts of a beta distribution (Gelman et al., Bayesian Data Analysis, 5.3). The host weighs least: it
is a hint, never a verdict. Old rentals count for less, by half every 30 days.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

from jobs.domain.market_models import Mark
from jobs.market import reputation
from jobs.market.ranking.knowledge import Machine, Rental
from jobs.market.ranking.likeness import plain
from jobs.market.ranking.work import Advertised

HALF_LIFE_MS = 30 * 86_400_000
UNTOLD_RELIABILITY = 0.98
BASE, PER_UNRELIABILITY = 0.02, 0.7
MARKET_COUNTS, MODEL_COUNTS, HOST_COUNTS, MACHINE_COUNTS = 20.0, 12.0, 25.0, 3.0
"""Rentals that the level above is worth: the more, the weaker what was seen at the level itself."""
LEAST, MOST = 0.002, 0.95

Counts = dict[Hashable, list[float]]


def _counted(rentals: Sequence[Rental], now_ms: int, key: Callable[[Rental], Hashable]) -> Counts:
    counts: Counts = defaultdict(lambda: [0.0, 0.0])
    for rental in rentals:
        weight = 0.5 ** (max(now_ms - rental.at_ms, 0) / HALF_LIFE_MS)
        counts[key(rental)][0] += weight * rental.failed
        counts[key(rental)][1] += weight
    return counts


class Failures:
    """What the rentals so far say of the next one."""

    def __init__(self, rentals: Sequence[Rental], marks: Mapping[Machine, Sequence[Mark]], now_ms: int):
        self._market = _counted(rentals, now_ms, lambda r: r.machine[0])
        self._models = _counted(rentals, now_ms, lambda r: (r.machine[0], plain(r.gpu_model)))
        self._hosts = _counted(rentals, now_ms, lambda r: (r.machine[0], r.host_id) if r.host_id else None)
        self._machines = _counted(rentals, now_ms, lambda r: r.machine)
        # A mark is one more failure, for as much as it still weighs: whoever names a marked machine is told so.
        for machine, rows in marks.items():
            heavy = sum(reputation.weight(row, now_ms) for row in rows if row.kind != reputation.SLOW)
            self._machines[machine][0] += heavy
            self._machines[machine][1] += heavy

    def chance(self, offer: Advertised) -> float:
        """The probability that a rental of `offer` ends without a proof by the machine's own fault."""
        told = offer.facts.get("reliability")
        reliability = float(told) if isinstance(told, int | float) and 0 <= told <= 1 else UNTOLD_RELIABILITY
        chance = BASE + PER_UNRELIABILITY * (1 - reliability)
        for counts, key, worth in (
            (self._market, offer.provider, MARKET_COUNTS),
            (self._models, (offer.provider, plain(offer.gpu_model)), MODEL_COUNTS),
            (self._hosts, (offer.provider, offer.host_id) if offer.host_id else None, HOST_COUNTS),
            (self._machines, (offer.provider, offer.machine_id), MACHINE_COUNTS),
        ):
            if key is not None and key in counts:
                failed, seen = counts[key]
                chance = (failed + worth * chance) / (seen + worth)
        return min(max(chance, LEAST), MOST)
