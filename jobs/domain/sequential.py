"""Deciding early whether a machine is faster or slower than a minimum: a test that may be looked at after every proof.

The times between proofs are compared with the time that the minimum allows. The statistic is the likelihood ratio of
"another mean" to "exactly the minimum" that does not know the variance either: effect sizes mixed by a normal
distribution, the scale by its invariant one (Lai, Annals of Statistics 4, 1976; Wang & Ramdas, "Anytime-valid t-tests
and confidence sequences for Gaussian means with unknown variance", 2024):

    G(n) = sqrt(c / (n + c)) * (V / (V - S^2 / (n + c)))^(n / 2),   S = sum of differences, V = sum of their squares

For a machine that is exactly at the minimum, the chance that G ever reaches 20 is 5 % (Ville's inequality), however
often one looks; for any other it is the wrong side that gets less. That holds for times that are normal and
independent. Real ones are skewed, follow each other, and rare long ones are not among the first. So the test waits for
`LEAST` of them, takes their spread for at least `FLOOR` of the allowed time and for more where neighbours are alike,
and leaves open what is within `MARGIN` of the minimum: that is measured to the end. What it errs then is simulated in
the tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ERROR = 0.05
"""The chance that a machine at the minimum is called faster or slower, at any time."""
MIXING = 0.25
"""`c`: effects of about 1 / sqrt(c) = 2 standard deviations are found soonest."""
LEAST = 4
FLOOR = 0.03
MARGIN = 0.1
TYPICAL_SPREAD = 0.08
"""What the times between proofs vary by, for the reckoning of what a benchmark will cost."""

FASTER, SLOWER, OPEN = "faster", "slower", ""


def _log_ratio(n: float, square_of_mean: float | Floats, mean_square: float | Floats) -> Floats:
    """log G of n differences with these means, spread already floored."""
    left = 1 - (square_of_mean / mean_square) * n / (n + MIXING)
    ratio: Floats = 0.5 * np.log(MIXING / (n + MIXING)) - n / 2 * np.log(left)
    return ratio


def decide(times_s: Sequence[float], allowed_s: float) -> str:
    """`faster` or `slower` than `allowed_s` on average, '' while that is open. Seconds each, in the order they came."""
    n = len(times_s)
    if n < LEAST or allowed_s <= 0:
        return OPEN
    times = np.asarray(times_s, dtype=np.float64) / allowed_s
    mean = float(times.mean()) - 1
    off = times - times.mean()
    variance = float(off @ off) / n
    alike = float(off[1:] @ off[:-1]) / n / max(variance, 1e-12) + 1 / n  # its estimate is too low by about 1 / n
    variance *= (1 + max(alike, 0.0)) / (1 - min(max(alike, 0.0), 0.8))
    ratio = float(_log_ratio(n, mean**2, mean**2 + variance + FLOOR**2))
    if abs(mean) < MARGIN or ratio < math.log(1 / ERROR):
        return OPEN
    return FASTER if mean < 0 else SLOWER


def expected_fraction(center: Floats, spread: Floats, minimum: float | None, proofs: int) -> Floats:
    """The part of `proofs` that a benchmark will make, where log rate is normal with this center and spread.

    1 without a `minimum`: then there is nothing to decide.
    """
    if minimum is None or proofs <= LEAST:
        return np.ones(len(center))
    total = np.zeros(len(center))
    points, weights = np.polynomial.hermite_e.hermegauss(5)
    looks = sorted({LEAST, *(round(LEAST * (proofs / LEAST) ** (i / 12)) for i in range(13)), proofs})
    for z, weight in zip(points, weights / weights.sum(), strict=True):
        gap = np.abs(np.expm1(np.log(minimum) - center - z * spread)) / (TYPICAL_SPREAD + FLOOR)
        needs = np.full(len(center), float(proofs))
        for n in reversed(looks):
            needs = np.where(_log_ratio(n, gap**2, gap**2 + 1) >= math.log(1 / ERROR), float(n), needs)
        total += weight * needs
    fraction: Floats = total / proofs
    return fraction
