"""The group law, point checks and the pairing against definitions and against other people's code."""

from __future__ import annotations

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gpu.curve.checks import all_in_subgroup, first_off_curve
from gpu.curve.group import KernelGroup, kernel_g1, kernel_g2
from gpu.curve.pairing import pairing
from gpu.curve.params import Curve
from tests.gpu.kernels import every_sum
from tests.gpu.points import outside_subgroup

pytestmark = pytest.mark.prover


@pytest.fixture(params=[1, 2], ids=["g1", "g2"])
def group(request: pytest.FixtureRequest, curve: Curve) -> KernelGroup:
    return kernel_g1(curve) if request.param == 1 else kernel_g2(curve)


def test_generators_and_orders(group: KernelGroup) -> None:
    reference = group.reference
    assert reference.in_subgroup(reference.generator)
    assert reference.mul(reference.generator, group.curve.r - 1) == reference.neg(reference.generator)


def test_sums_equal_the_oracle_with_equal_opposite_and_infinite_points(group: KernelGroup) -> None:
    reference, rng = group.reference, random.Random(3)
    some = [reference.mul(reference.generator, rng.randrange(group.curve.r)) for _ in range(3)]
    points = [None, *some, *(reference.neg(point) for point in some[:2])]
    cases = list(itertools.product(range(len(points)), range(len(points)), (False, True)))
    pairs = np.array([case[:2] for case in cases], np.int64)
    negate = np.array([case[2] for case in cases])
    affine, full, doubles = (group.sums(len(cases)) for _ in range(3))
    every_sum(group.kind.marker, len(cases), group.encode(points), pairs, negate, affine, full, doubles)
    for k, (i, j, minus) in enumerate(cases):
        p, q = points[i], reference.neg(points[j]) if minus else points[j]
        assert group.to_affine(affine, k) == reference.add(p, q)
        assert group.to_affine(full, k) == reference.add(reference.add(p, p), q)


def test_encoding_round_trips(group: KernelGroup) -> None:
    points = [group.reference.generator, None, group.reference.neg(group.reference.generator)]
    section = group.encode(points)
    assert [group.decode(section, i) for i in range(3)] == points


def test_off_curve_and_unreduced_points_are_found(group: KernelGroup, pool: ThreadPoolExecutor) -> None:
    points = [group.reference.generator] * 5
    section = group.encode(points)
    assert first_off_curve(group, section, pool, 2) == -1
    broken = section.copy()
    broken[3 * group.point_bytes] ^= 1
    assert first_off_curve(group, broken, pool, 2) == 3
    # x + p is the same residue, but not the one form that a key may hold.
    n = group.curve.fp.n_bytes
    x = int.from_bytes(section[:n].tobytes(), "little") + group.curve.p
    unreduced = section.copy()
    unreduced[:n] = np.frombuffer(x.to_bytes(n, "little"), np.uint8)
    assert first_off_curve(group, unreduced, pool, 2) == 0


def test_points_outside_the_subgroup_are_found(group: KernelGroup, pool: ThreadPoolExecutor) -> None:
    reference = group.reference
    good = [reference.mul(reference.generator, k) for k in range(1, 40)]
    assert all_in_subgroup(group, [group.encode(good), group.encode([None, *good])], pool)
    if group.kind.degree == 1 and group.curve.d_twist:
        return  # BN254's G1 has prime order: there is no such point
    stray = outside_subgroup(group)
    assert not all_in_subgroup(group, [group.encode([*good, stray])], pool)
    # Two that cancel in a plain sum are still found, and so are strays in any section but the last.
    assert not all_in_subgroup(group, [group.encode([stray, *good, reference.neg(stray)]), group.encode(good)], pool)


def test_pairing_is_bilinear_and_not_trivial(curve: Curve) -> None:
    engine, one, two = pairing(curve), kernel_g1(curve).reference, kernel_g2(curve).reference
    pairs = [(one.mul(curve.g1, 6), curve.g2), (curve.g1, two.mul(curve.g2, 5)), (one.mul(curve.g1, -11), curve.g2)]
    assert engine.is_one(pairs)
    assert not engine.is_one(pairs[:2])
    assert engine.is_one([(None, curve.g2), (curve.g1, None)])
    value = engine.product([(curve.g1, curve.g2)])
    assert engine.fp12.power(value, curve.r) == engine.fp12.one
