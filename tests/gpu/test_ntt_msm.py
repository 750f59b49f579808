"""Transforms and multi-scalar multiplications against their definitions."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gpu.curve.group import KernelGroup, kernel_g1, kernel_g2
from gpu.curve.params import Curve
from gpu.msm import plan
from gpu.msm.fixed import FixedBase
from gpu.msm.plan import Msm, pack, small
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


@pytest.fixture(params=[1, 2], ids=["g1", "g2"])
def group(request: pytest.FixtureRequest, curve: Curve) -> KernelGroup:
    return kernel_g1(curve) if request.param == 1 else kernel_g2(curve)


def mixed(group: KernelGroup, n: int, seed: int) -> tuple[list, list[int]]:
    """Points with repeats, opposites and infinities; scalars with zeros, ones, extremes and full ones."""
    rng, reference, r = random.Random(seed), group.reference, group.curve.r
    some = [reference.mul(reference.generator, rng.randrange(r)) for _ in range(4)]
    palette = [*some, *some[:2], reference.neg(some[0]), None]
    scalars = [rng.choice([0, 1, 2, r - 1, r - 2, r // 2, rng.randrange(r)]) for _ in range(n)]
    return [rng.choice(palette) for _ in range(n)], scalars


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 40])
def test_msm_equals_the_definition(group: KernelGroup, n: int, pool: ThreadPoolExecutor) -> None:
    points, scalars = mixed(group, n, n)
    wanted = group.reference.msm(points, scalars)
    section = group.encode(points)
    assert Msm(group, section, pack(scalars), pool, 2).result() == wanted
    assert small(group, section, scalars) == wanted


@pytest.mark.parametrize("window", [2, 3, 8, 13, 15])
def test_every_window_keeps_its_top_carry(
    group: KernelGroup, window: int, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "best_window", lambda n, bits: window)
    r, reference = group.curve.r, group.reference
    scalars = [r - 1, (1 << (r.bit_length() - 1)) - 1, r - (1 << 200), 1 << (window - 1), (1 << window) - 1]
    points = [reference.mul(reference.generator, k + 1) for k in range(len(scalars))]
    got = Msm(group, group.encode(points), pack(scalars), pool, 2).result()
    assert got == reference.msm(points, scalars)


def test_msm_split_over_ranges_of_points(
    curve: Curve, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine with more threads than windows."""
    monkeypatch.setattr(plan, "_MIN_RANGE", 8)
    group = kernel_g1(curve)
    points, scalars = mixed(group, 50, 9)
    got = Msm(group, group.encode(points), pack(scalars), pool, 1000).result()
    assert got == group.reference.msm(points, scalars)


def test_bit_scalars_and_one_point_over_and_over(group: KernelGroup, pool: ThreadPoolExecutor) -> None:
    n, reference = 300, group.reference
    section = np.tile(group.encode([reference.generator]), n)
    bits = [i % 2 for i in range(n)]
    assert Msm(group, section, pack(bits), pool, 2).result() == reference.mul(reference.generator, n // 2)


def test_fixed_base_multiples(group: KernelGroup, pool: ThreadPoolExecutor) -> None:
    r, reference = group.curve.r, group.reference
    scalars = [0, 1, 2, 255, 256, r - 1, r // 3, 0]
    section = np.frombuffer(
        FixedBase(group, reference.generator).multiples(pack(scalars).reshape(-1, 4), pool), np.uint8
    )
    wanted = [reference.mul(reference.generator, scalar) for scalar in scalars]
    assert [group.decode(section, i) for i in range(len(scalars))] == wanted
