"""Multi-scalar multiplication on the emulated device: whole sums, with everything that is special about them."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from gpu.cuda.device import Buffer, OutOfDeviceMemory
from gpu.curve.group import KernelGroup, kernel_g1
from gpu.curve.params import BLS12381, BN254, CURVES, Curve
from gpu.curve.reference import Point
from gpu.msm import schedule
from gpu.msm.horner import horner
from gpu.msm.launch import DeviceMsm, n_bytes
from gpu.msm.plan import pack
from gpu.msm.schedule import DEFAULT_ENTRIES, MAX_C
from tests.gpu.ptx.device import EmulatedDevice

pytestmark = pytest.mark.prover

Put = Callable[[np.ndarray], Buffer]
FEW = 12


def multiples(group: KernelGroup) -> dict[int, Point]:
    """[k]G for k = -FEW..FEW, infinity included."""
    reference, out = group.reference, {0: None}
    for k in range(1, FEW + 1):
        out[k] = reference.add(out[k - 1], reference.generator)
        out[-k] = reference.neg(out[k])
    return out


def check(
    device: EmulatedDevice, put: Put, group: KernelGroup, factors: list[int], scalars: list[int], **how: int
) -> None:
    """The sum of scalars[i] * [factors[i]]G is one multiple of G."""
    n, table = len(factors), multiples(group)
    points = put(group.encode([table[k] for k in factors]) if n else np.zeros(16, np.uint8))
    packed = put(pack(scalars) if n else np.zeros(16, np.uint8))
    before = device.used
    msm = DeviceMsm(device, group, max(n, 1), **how)
    assert device.used - before == n_bytes(group, max(n, 1), **how)
    got = msm.run(points, packed, n)
    msm.free()
    total = sum(k * scalar for k, scalar in zip(factors, scalars, strict=True))
    assert got == group.reference.mul(group.reference.generator, total)


def draw(rng: random.Random, r: int, n: int) -> list[int]:
    return [rng.choice([0, 1, 2, r - 1, r - 2, r // 2, r // 2 + 1, rng.randrange(r)]) for _ in range(n)]


@pytest.mark.parametrize("n", [0, 1, 2, 33, 500])
def test_mixed(device: EmulatedDevice, put: Put, group: KernelGroup, n: int) -> None:
    """Points that repeat, opposites, infinities; scalars with zeros, ones, extremes."""
    rng = random.Random(n)
    check(device, put, group, [rng.randint(-FEW, FEW) for _ in range(n)], draw(rng, group.curve.r, n))


def all_equal(rng: random.Random, r: int, n: int) -> tuple[list[int], list[int]]:
    return [1] * n, [rng.randrange(r)] * n


def ones(rng: random.Random, r: int, n: int) -> tuple[list[int], list[int]]:
    return [rng.randint(-FEW, FEW) for _ in range(n)], [1] * n


def minus_ones(rng: random.Random, r: int, n: int) -> tuple[list[int], list[int]]:
    return [rng.randint(-FEW, FEW) for _ in range(n)], [r - 1] * n


def bits(rng: random.Random, r: int, n: int) -> tuple[list[int], list[int]]:
    return [1 + i % FEW for i in range(n)], [rng.randrange(2) for _ in range(n)]


def opposites(rng: random.Random, r: int, n: int) -> tuple[list[int], list[int]]:
    """The sum is infinity, and so is every bucket."""
    return [5, -5] * (n // 2), [rng.randrange(r)] * n


def zeros(rng: random.Random, r: int, n: int) -> tuple[list[int], list[int]]:
    return [1 + i % FEW for i in range(n)], [0] * n


def infinities(rng: random.Random, r: int, n: int) -> tuple[list[int], list[int]]:
    return [0] * n, [rng.randrange(r) for _ in range(n)]


@pytest.mark.parametrize("case", [all_equal, ones, minus_ones, bits, opposites, zeros, infinities])
def test_special(device: EmulatedDevice, put: Put, group: KernelGroup, case: Callable[..., tuple]) -> None:
    """Giant buckets, which many slices share, among them."""
    factors, scalars = case(random.Random(4), group.curve.r, 200)
    check(device, put, group, factors, scalars)


@pytest.mark.parametrize("c", [2, 3, 5, 7, 8, 11])
def test_every_width(device: EmulatedDevice, put: Put, curve: Curve, c: int) -> None:
    r = curve.r
    scalars = [r - 1, r // 2, r // 2 + 1, 1 << (c - 1), (1 << c) - 1, r - (1 << (c - 1)), r - (1 << 200), 1 << 252]
    check(device, put, kernel_g1(curve), list(range(1, len(scalars) + 1)), scalars, c=c)


def test_rounds_of_few_windows_and_ranges_of_few_points(device: EmulatedDevice, put: Put, group: KernelGroup) -> None:
    rng = random.Random(6)
    factors, scalars = [rng.randint(-FEW, FEW) for _ in range(50)], draw(rng, group.curve.r, 50)
    check(device, put, group, factors, scalars, entries=50 * 20)
    check(device, put, group, factors, scalars, entries=30, c=8)


def test_fewer_scalars_than_it_was_made_for(device: EmulatedDevice, put: Put, curve: Curve) -> None:
    group = kernel_g1(curve)
    table, rng = multiples(group), random.Random(8)
    factors, scalars = [rng.randint(-FEW, FEW) for _ in range(40)], draw(rng, curve.r, 40)
    points, packed = put(group.encode([table[k] for k in factors])), put(pack(scalars))
    msm = DeviceMsm(device, group, 300)
    for n in (40, 3, 0, 17):
        total = sum(k * scalar for k, scalar in zip(factors[:n], scalars[:n], strict=True))
        assert msm.run(points, packed, n) == group.reference.mul(group.reference.generator, total)
    assert msm.run(points.at(5 * group.point_bytes), packed.at(5 * 32), 1) == group.reference.mul(
        table[factors[5]], scalars[5]
    )
    msm.free()


def test_the_end_of_a_sum_while_the_next_one_runs(device: EmulatedDevice, put: Put, curve: Curve) -> None:
    group = kernel_g1(curve)
    table, g = multiples(group), group.reference.generator
    points, scalars = put(group.encode([table[1], table[2], table[3]])), put(pack([5, curve.r - 7, 1 << 200]))
    msm = DeviceMsm(device, group, 2)
    first = msm.start(points, scalars, 2)
    with pytest.raises(RuntimeError, match="before its wait"):
        first.point()
    first.wait()
    second = msm.start(points.at(group.point_bytes), scalars.at(32), 2)
    assert first.point() == group.reference.mul(g, 5 - 14)
    second.wait()
    assert second.point() == group.reference.mul(g, -14 + (3 << 200))
    for n in (0, 3):
        with pytest.raises(ValueError, match=f"{n} points"):
            msm.start(points, scalars, n)
    msm.free()


def test_without_memory_nothing_stays(group: KernelGroup) -> None:
    need = n_bytes(group, 100)
    for total in (need - 1, need // 2, 10):
        device = EmulatedDevice(total=total)
        with pytest.raises(OutOfDeviceMemory):
            DeviceMsm(device, group, 100)
        assert device.used == 0


@pytest.mark.parametrize("curve_name", list(CURVES))
def test_a_smaller_sum_fits_where_a_larger_one_does(curve_name: str) -> None:
    r = CURVES[curve_name].r
    for n_max in (1, 2, 100, 5000, 1 << 16, 1 << 20, 1 << 24, 1 << 27):
        made = schedule.best(r, n_max, DEFAULT_ENTRIES)
        room = made.sizes(192)
        for n in {max(1, n_max // k) for k in (1, 2, 3, 10, 1000, n_max)} | {max(1, n_max - 1)}:
            found = schedule.fitting(r, 192, n, DEFAULT_ENTRIES, made)
            assert found.n == n
            assert schedule.best(r, n, DEFAULT_ENTRIES).cost() > 0.7 * found.cost(), "nor much slower for it"
            assert found.n_windows <= 128
            assert all(size <= room[name] for name, size in found.sizes(192).items())
            assert found.max_slices >= found.n_buckets + n * found.per_round // found.slice_length
        assert sum(room.values()) < 3 << 29, "scratch memory stays bounded"


@pytest.mark.parametrize("curve", [BN254, BLS12381], ids=["bn254", "bls12381"])
@pytest.mark.parametrize("c", range(2, MAX_C + 1))
def test_windows_hold_half_the_order_with_a_sign(curve: Curve, c: int) -> None:
    count = schedule.n_windows(curve.r, c)
    middle = schedule.middle(c, count)
    for scalar in (curve.r // 2, -(curve.r // 2), 0):
        digits = [(scalar + middle >> c * w & (1 << c) - 1) - (1 << c - 1) for w in range(count)]
        assert sum(digit << c * w for w, digit in enumerate(digits)) == scalar
    assert c * count <= 288


def test_horner(group: KernelGroup) -> None:
    """Sums of windows in any scaling, infinite ones, and ones that meet themselves or their opposite on the way."""
    reference, c = group.reference, 3
    f, g = reference.field, reference.generator

    def scaled(k: int, factor: int) -> tuple:
        point = reference.mul(g, k)
        if point is None:
            return f.zero, f.zero, f.zero, f.zero
        z = f.scale(f.one, factor)
        zz, zzz = f.mul(z, z), f.mul(f.mul(z, z), z)
        return f.mul(point[0], zz), f.mul(point[1], zzz), zz, zzz

    for multiples in ([], [0], [0, 0], [5], [3, 0, 2], [8, 1], [-8, 1], [-8, 1, 4], [7, 6, 5, 4]):
        windows = [scaled(k, i + 2) for i, k in enumerate(multiples)]
        wanted = reference.mul(g, sum(k << c * i for i, k in enumerate(multiples)))
        assert horner(f, windows, c) == wanted
