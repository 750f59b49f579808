"""Transforms against their definition."""

from __future__ import annotations

import random

import pytest

from gpu.curve.params import Curve
from gpu.msm.plan import pack
from gpu.ntt.domain import Domain
from gpu.ntt.reference import evaluate

pytestmark = pytest.mark.prover


@pytest.mark.parametrize("size", [2, 4, 8, 64])
def test_transform_to_the_odd_coset(curve: Curve, size: int) -> None:
    rng, r, log_n = random.Random(size), curve.r, size.bit_length() - 1
    coefficients = [rng.choice([0, 1, r - 1, rng.randrange(r)]) for _ in range(size)]
    values = evaluate(coefficients, curve.roots[log_n], 1, r)
    x = pack(curve.fr.to_montgomery(value) for value in values)
    Domain(curve, size).to_odd_coset(x)
    raw = x.tobytes()
    got = [curve.fr.from_montgomery(int.from_bytes(raw[i : i + 32], "little")) for i in range(0, len(raw), 32)]
    assert got == evaluate(coefficients, curve.roots[log_n], curve.roots[log_n + 1], r)
