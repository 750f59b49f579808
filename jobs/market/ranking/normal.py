"""The normal distribution for arrays: numpy has none, and scipy is too large a guest for two functions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def cdf(z: Floats) -> Floats:
    """P(Z <= z) to 1e-7 (Abramowitz & Stegun, Handbook of Mathematical Functions, 26.2.17)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    tail = (
        density(z) * t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    )
    below: Floats = np.where(z < 0, tail, 1 - tail)
    return below


def density(z: Floats) -> Floats:
    """The density at z."""
    at: Floats = np.exp(-0.5 * np.minimum(z * z, 1400.0)) / np.sqrt(2 * np.pi)
    return at
