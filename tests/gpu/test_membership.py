"""Membership: the endomorphisms, the exact tests and the proof that they are exact, checks of whole sections."""

from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gpu.curve import checks
from gpu.curve.endomorphism import endomorphisms, relation
from gpu.curve.group import KernelGroup, kernel_g1, kernel_g2
from gpu.curve.membership import first_outside
from gpu.curve.params import Curve
from gpu.curve.reference import g1, g2
from tests.gpu.points import on_curve, outside_subgroup

pytestmark = pytest.mark.prover


@pytest.fixture(params=[1, 2], ids=["g1", "g2"])
def group(request: pytest.FixtureRequest, curve: Curve) -> KernelGroup:
    return kernel_g1(curve) if request.param == 1 else kernel_g2(curve)


def twist_order(curve: Curve) -> int:
    """The number of points of the sextic twist over Fp2 that r divides (Hess, Smart, Vercauteren 2006, Prop. 2)."""
    p, t = curve.p, trace(curve)
    t2 = t * t - 2 * p
    y = math.isqrt((4 * p * p - t2 * t2) // 3)
    assert 3 * y * y == 4 * p * p - t2 * t2
    (order,) = [
        n for s in (t2 + 3 * y, t2 - 3 * y) for n in (p * p + 1 - s // 2, p * p + 1 + s // 2) if n % curve.r == 0
    ]
    return order


def trace(curve: Curve) -> int:
    return 6 * curve.x**2 + 1 if curve.d_twist else curve.x + 1


def test_the_endomorphisms_act_as_their_eigenvalues(curve: Curve) -> None:
    one, two, maps = g1(curve), g2(curve), endomorphisms(curve)
    p, q = one.mul(curve.g1, 5), two.mul(curve.g2, 7)
    assert one.image(p) == one.mul(p, maps.lam)
    assert two.image(q) == two.mul(q, curve.p)
    stray = outside_subgroup(kernel_g2(curve))
    image, twice = two.image(stray), two.image(two.image(stray))
    t = trace(curve)
    traced = two._multiple(image if t < 0 else two.neg(image), abs(t))
    scaled = two.add(two._multiple(stray, curve.p), traced)
    assert two.add(twice, scaled) is None  # psi^2 - t psi + p = 0 on the whole twist


def test_the_relations_are_proofs(curve: Curve) -> None:
    """What `endomorphism` claims: gcd(resultant, order) = r on the twist, and f(phi) implies [r]P = 0 on the curve."""
    x, p, r, t = curve.x, curve.p, curve.r, trace(curve)
    a = b = 0  # the relation as a + b psi, by psi^2 = t psi - p
    power = (1, 0)
    columns = max(len(row) for row in relation(curve, 2))
    for k in range(columns):
        n = sum(row[k] * x**j for j, row in enumerate(relation(curve, 2)) if k < len(row))
        a, b = a + n * power[0], b + n * power[1]
        power = (-p * power[1], power[0] + t * power[1])
    resultant = a * a + a * b * t + b * b * p
    assert math.gcd(resultant, twist_order(curve)) == r
    assert twist_order(curve) % r**2 != 0
    if not curve.d_twist:
        assert relation(curve, 1) == [[0, 1], [], [1]]  # phi = -x^2, and phi^2 + phi + 1 = 0
        assert x**4 - x**2 + 1 == r
    else:
        assert p + 1 - t == r


def test_exact_tests_agree_with_the_definition(group: KernelGroup) -> None:
    """Random points of the curve, points whose order divides the cofactor, small orders, members, infinity."""
    reference, rng = group.reference, random.Random(1)
    strays = [on_curve(group, k) for k in range(1, 9)]
    cofactor_only = [reference._multiple(point, group.curve.r) for point in strays]
    members = [reference.mul(reference.generator, rng.randrange(group.curve.r)) for _ in range(4)]
    points = [*strays, *cofactor_only, *members, None]
    expected = [reference._multiple(point, group.curve.r) is None for point in points]
    assert True in expected
    assert [reference.in_subgroup(point) for point in points] == expected
    section = group.encode(points)
    nothing, marker = group.sums(0), group.kind.marker
    if relation(group.curve, group.kind.degree):
        assert False in expected
        found = [first_outside(marker, section, i, i + 1, nothing, 0, 0, group.sums(1)) for i in range(len(points))]
        assert [i < 0 for i in found] == expected


def test_points_of_order_three_and_eleven_are_outside() -> None:
    """The weakest strays there are: the cofactor of BLS12-381's G1 is 3 * 11^2 * ..."""
    from gpu.curve.params import BLS12381

    group = kernel_g1(BLS12381)
    reference, x = group.reference, BLS12381.x
    cofactor = (x - 1) ** 2 // 3
    for prime, rest in ((3, cofactor // 3), (11, cofactor // 121)):
        multiples = (reference._multiple(on_curve(group, k), BLS12381.r * rest) for k in range(1, 60))
        found = next(point for point in multiples if point is not None)
        assert reference._multiple(found, prime) is None
        assert not reference.in_subgroup(found)
        mixed = reference.add(found, reference.generator)
        section = group.encode([mixed])
        assert first_outside(group.kind.marker, section, 0, 1, group.sums(0), 0, 0, group.sums(1)) == 0


def test_off_curve_and_unreduced_points_are_found(group: KernelGroup, pool: ThreadPoolExecutor) -> None:
    section = group.encode([group.reference.generator, None] * 3)
    assert checks.first_fault([(group, section)], pool, 2) is None
    broken = section.copy()
    broken[4 * group.point_bytes] ^= 1
    fault = checks.first_fault([(group, section), (group, broken)], pool, 2)
    assert fault is not None
    assert (fault.section, fault.index) == (1, 4)
    # x + p is the same residue, but not the one form that a key may hold.
    n = group.curve.fp.n_bytes
    x = int.from_bytes(section[:n].tobytes(), "little") + group.curve.p
    unreduced = section.copy()
    unreduced[:n] = np.frombuffer(x.to_bytes(n, "little"), np.uint8)
    fault = checks.first_fault([(group, unreduced)], pool, 2)
    assert fault is not None
    assert (fault.section, fault.index) == (0, 0)


def test_points_outside_the_subgroup_are_found_and_named(group: KernelGroup, pool: ThreadPoolExecutor) -> None:
    reference = group.reference
    good = [reference.mul(reference.generator, k) for k in range(1, 400)]
    sections = [(group, group.encode(good)), (group, group.encode([None, *good]))]
    assert checks.first_fault(sections, pool, 2) is None
    if not relation(group.curve, group.kind.degree):
        return  # BN254's G1 has prime order: there is no such point
    stray = outside_subgroup(group)
    for at in (0, 123, 399):
        broken = group.encode([*good[:at], stray, *good[at:]])
        fault = checks.first_fault([*sections, (group, broken), sections[0]], pool, 2)
        assert fault == checks.Fault(2, at, "is outside the subgroup of order r")
    # Two that cancel in a plain sum are still found.
    broken = group.encode([stray, *good, reference.neg(stray)])
    fault = checks.first_fault([(group, broken)], pool, 2)
    assert fault is not None
    assert fault.index in (0, 400)


def test_a_section_of_many_ranges(curve: Curve, pool: ThreadPoolExecutor) -> None:
    """The ranges' sums are added up: a stray in the last range is found, and none is seen where none is."""
    group = kernel_g2(curve)
    few = group.encode([group.reference.mul(curve.g2, k) for k in range(64)])
    section = np.tile(few, 3 * checks._SMALL_RANGE // 64)
    assert checks.first_fault([(group, section)], pool, 3) is None
    at = len(section) - 5 * group.point_bytes
    section[at : at + group.point_bytes] = group.encode([outside_subgroup(group)])
    fault = checks.first_fault([(group, section)], pool, 3)
    assert fault == checks.Fault(0, 3 * checks._SMALL_RANGE - 5, "is outside the subgroup of order r")


def test_a_round_misses_a_stray_half_the_time_at_most(curve: Curve) -> None:
    """One coin at a time, the single subset of a range with one stray must be wrong in about half of many tries."""
    group = kernel_g2(curve)
    points = group.encode([group.reference.generator, outside_subgroup(group), group.reference.generator])
    one = checks._Range(group, 0, points, 0, 3, 4, 1)
    seen = 0
    for _ in range(4):
        _, sums = one.inspect()
        seen += sum(not group.reference.in_subgroup(group.decode(sums, k)) for k in range(one.count))
    assert 0.35 < seen / (4 * one.count) < 0.65  # 4.8 standard deviations
