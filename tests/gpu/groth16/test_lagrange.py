"""The Lagrange basis against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpu.curve.params import Curve
from gpu.groth16.lagrange import LagrangeBasis


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("size", [2, 8, 32])
def test_values_are_the_definitions(curve: Curve, size: int, odd: bool) -> None:
    r, tau, factor = curve.r, 123456789**5, 77
    first = curve.roots[size.bit_length()] if odd else 1
    points = [first * pow(curve.roots[size.bit_length() - 1], j, r) % r for j in range(size)]
    basis = LagrangeBasis(curve, size, tau, first, factor)
    parts = [basis.values(0, 1, False), basis.values(1, size, False)]  # pieces need nothing of each other
    for j, value in enumerate(integers(np.concatenate(parts))):
        others = points[:j] + points[j + 1 :]
        above, below = math.prod(tau - x for x in others), math.prod(points[j] - x for x in others)
        assert value == factor * above * pow(below, -1, r) % r
    montgomery = [curve.fr.from_montgomery(value) for value in integers(basis.values(0, size, True))]
    assert montgomery == integers(np.concatenate(parts))


def integers(words: np.ndarray) -> list[int]:
    return [int.from_bytes(words[i : i + 4].tobytes(), "little") for i in range(0, len(words), 4)]
