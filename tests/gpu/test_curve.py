"""The group law against its definition."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from gpu.curve.group import KernelGroup, kernel_g1, kernel_g2
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


def test_multiples_equal_repeated_additions(group: KernelGroup) -> None:
    """The oracle's two ways: Jacobian coordinates against the affine law, for points of any order."""
    reference = group.reference
    for point in (reference.generator, outside_subgroup(group) if group.kind.degree == 2 else reference.generator):
        total = None
        for k in range(40):
            assert reference._multiple(point, k) == total
            total = reference.add(total, point)
    assert reference._multiple(None, 5) is None
    assert reference.mul(reference.generator, group.curve.r) is None
