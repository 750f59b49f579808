"""Rates from completion times: a 90 % interval, and a sequential test that may end a bench early.

Proofs made C at a time end in clumps, so the spread is taken over batches of C completions (batch means; Law &
Kelton, Simulation Modeling and Analysis, ch. 9).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

MIN_PROOFS = 12
MIN_BATCHES = 10
ERROR = 0.01
_LEAST_SPREAD = 0.01  # of the mean: a machine closer to the minimum than this is never decided early


def interval(ends_s: Sequence[float], concurrency: int, level: float = 0.9) -> tuple[float, float] | None:
    """Proofs per hour, lower and upper end, from when each proof ended (seconds after the start). None below two
    batches: there is no spread to see.
    """
    batches = batch_durations(ends_s, concurrency)
    if len(batches) < 2:
        return None
    mean = statistics.fmean(batches)
    half = t_quantile((1 + level) / 2, len(batches) - 1) * statistics.stdev(batches) / math.sqrt(len(batches))
    slowest, fastest = mean + half, max(mean - half, 1e-9)
    return concurrency * 3600 / slowest, concurrency * 3600 / fastest


def batch_durations(ends_s: Sequence[float], concurrency: int) -> list[float]:
    """How long each run of `concurrency` completions took; an unfinished last one is left out."""
    ends = sorted(ends_s)[concurrency - 1 :: concurrency]
    return [end - start for start, end in zip([0.0, *ends], ends, strict=False)]


@dataclass(frozen=True)
class Decision:
    """What the test found, after how many proofs, with the interval that lies on one side of the minimum."""

    passed: bool
    after: int
    low: float
    high: float


class RateTest:
    """Whether the rate is surely above or below a minimum, looked at whenever a batch is complete.

    The k-th look takes a t-interval of level 1 - ERROR / (k (k + 1)) over the batches so far, less the first one,
    in which the pipeline fills. The sum of these over all k is ERROR, so the chance of any wrong decision in a
    whole bench is at most that (union bound), for batch durations about normal. Nothing is decided before
    MIN_PROOFS proofs and MIN_BATCHES batches.
    """

    def __init__(self, min_proofs_per_hour: float, concurrency: int) -> None:
        self._minimum = min_proofs_per_hour
        self._concurrency = concurrency
        self._looks = 0
        self._seen = 0

    def look(self, ends_s: Sequence[float]) -> Decision | None:
        """The decision, or None while there is none. `ends_s`: seconds at which the good proofs ended, so far."""
        batches = batch_durations(ends_s, self._concurrency)[1:]
        if len(ends_s) < MIN_PROOFS or len(batches) < MIN_BATCHES or len(batches) == self._seen:
            return None
        self._seen = len(batches)
        self._looks += 1
        alpha = ERROR / (self._looks * (self._looks + 1))
        mean = statistics.fmean(batches)
        deviation = statistics.stdev(batches) / math.sqrt(len(batches))
        half = max(t_quantile(1 - alpha / 2, len(batches) - 1) * deviation, _LEAST_SPREAD * mean)
        low = self._concurrency * 3600 / (mean + half)
        high = self._concurrency * 3600 / (mean - half) if mean > half else math.inf
        if low > self._minimum or high < self._minimum:
            return Decision(low > self._minimum, len(ends_s), low, high)
        return None


@lru_cache(maxsize=1024)
def t_quantile(p: float, freedom: int) -> float:
    """Student's t quantile for p in (0.5, 1), by bisection of its distribution function."""
    low, high = 0.0, 1.0
    while _t_distribution(high, freedom) < p:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_distribution(middle, freedom) < p else (low, middle)
    return (low + high) / 2


def _t_distribution(t: float, freedom: int) -> float:
    """P(T <= t) for t >= 0. NIST DLMF 8.17: 1 - I_x(n/2, 1/2) / 2 with x = n / (n + t^2)."""
    return 1 - _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), by the continued fraction DLMF 8.17.22 evaluated with Lentz's method."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 300):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * value
