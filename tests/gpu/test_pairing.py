"""The pairing: bilinear, not trivial, the compiled one equal to the one on Python ints, and that to other people's."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from gpu.curve.pairing import pairing
from gpu.curve.params import BLS12381, BN254, Curve
from gpu.curve.reference import g1, g2
from gpu.field.tower import Dozen
from gpu.pairing.exponent import non_adjacent
from gpu.pairing.host import compiled_pairing

pytestmark = pytest.mark.prover


def bilinear(curve: Curve) -> list:
    """e(6P, Q) e(P, 5Q) e(-11P, Q) = 1."""
    one, two = g1(curve), g2(curve)
    return [(one.mul(curve.g1, 6), curve.g2), (curve.g1, two.mul(curve.g2, 5)), (one.mul(curve.g1, -11), curve.g2)]


def power_given(curve: Curve) -> int:
    """The power of the pairing that the compiled chain gives."""
    x = curve.x
    return 2 * x * (6 * x * x + 3 * x + 1) if curve.d_twist else 3


def test_pairing_is_bilinear_and_not_trivial(curve: Curve) -> None:
    engine, pairs = pairing(curve), bilinear(curve)
    assert engine.is_one(pairs)
    assert not engine.is_one(pairs[:2])
    assert engine.is_one([(None, curve.g2), (curve.g1, None)])
    value = engine.product([(curve.g1, curve.g2)])
    assert engine.fp12.power(value, curve.r) == engine.fp12.one


def test_the_compiled_pairing_is_bilinear_and_not_trivial(curve: Curve) -> None:
    engine, pairs = compiled_pairing(curve), bilinear(curve)
    assert engine.is_one(pairs)
    assert engine.is_one([])
    assert engine.is_one([(None, curve.g2), *pairs, (curve.g1, None)])
    assert engine.is_one([(curve.g1, None)])
    for i in range(3):
        assert not engine.is_one(pairs[:i] + pairs[i + 1 :])
    assert power_given(curve) % curve.r != 0


def test_compiled_values_equal_the_oracle(curve: Curve) -> None:
    one, two, rng, oracle = g1(curve), g2(curve), random.Random(2), pairing(curve)
    for count in (1, 1, 3):
        pairs = [
            (one.mul(curve.g1, rng.randrange(curve.r)), two.mul(curve.g2, rng.randrange(curve.r))) for _ in range(count)
        ]
        expected = oracle.fp12.power(oracle.product(pairs), power_given(curve))
        assert compiled_pairing(curve).value(pairs) == expected


def test_products_of_parts_equal_the_whole(curve: Curve) -> None:
    """Miller values of groups of pairs, multiplied and exponentiated once, are the product of all pairs."""
    engine, one, two = compiled_pairing(curve), g1(curve), g2(curve)
    p = engine.one.encode([one.mul(curve.g1, k) for k in (2, 3, 4, 5, -14)]).view(np.uint64)
    q = engine.two.encode([curve.g2] * 5).view(np.uint64)
    parts = np.concatenate([engine.miller(p, q, i, j) for i, j in ((0, 1), (1, 4), (4, 4), (4, 5))])
    assert np.array_equal(engine.final(p[:0], q[:0], parts), engine.unit)
    assert np.array_equal(engine.final(p, q, engine.unit), engine.unit)
    assert not np.array_equal(engine.final(p[:0], q[:0], parts[: -engine.unit.size]), engine.unit)
    doubled = engine.one.encode([one.mul(curve.g1, 2)]).view(np.uint64), engine.two.encode([two.generator]).view("u8")
    assert not np.array_equal(engine.final(*doubled, engine.unit), engine.unit)


def test_bn254_equals_py_ecc() -> None:
    """py_ecc writes Fp12 over w^12 - 18 w^6 + 82, w^6 = 9 + u, and exponentiates by (p^12 - 1)/r."""
    from gpu.groth16.verify import _import_py_ecc

    bn, one, two = _import_py_ecc(), g1(BN254), g2(BN254)
    p, q = one.mul(BN254.g1, 1234567), two.mul(BN254.g2, 7654321)
    assert p is not None
    assert q is not None
    theirs = bn.pairing((bn.FQ2(q[0]), bn.FQ2(q[1]), bn.FQ2.one()), (bn.FQ(p[0]), bn.FQ(p[1]), bn.FQ(1)))
    raw = [int(c) for c in theirs.coeffs]
    ours: Dozen = tuple(((raw[k] + 9 * raw[k + 6]) % BN254.p, raw[k + 6]) for k in range(6))
    oracle = pairing(BN254)
    assert oracle.product([(p, q)]) == ours
    assert compiled_pairing(BN254).value([(p, q)]) == oracle.fp12.power(ours, power_given(BN254))


def test_bls12381_agrees_with_arkworks() -> None:
    """Their GT is opaque, so products are compared: both call the same ones one."""
    from py_arkworks_bls12381 import GT

    from gpu.groth16.verify import _arkworks_point

    for pairs in (bilinear(BLS12381), bilinear(BLS12381)[:2]):
        theirs = GT.pairing_check(*([_arkworks_point(pair[i]) for pair in pairs] for i in (0, 1)))
        assert compiled_pairing(BLS12381).is_one(pairs) == theirs


def test_the_non_adjacent_form() -> None:
    for value in [*range(1, 70), BN254.x, 6 * BN254.x + 2, -BLS12381.x]:
        digits = non_adjacent(value)
        assert digits[0] == 1
        assert sum(digit << i for i, digit in enumerate(reversed(digits))) == value
        assert all(not (a and b) for a, b in itertools.pairwise(digits))
