"""Transforms and the kernels around them on the emulated device, against the CPU's and Python's integers."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from gpu.cuda.device import Buffer, OutOfDeviceMemory
from gpu.curve.params import BN254, Curve
from gpu.msm.plan import pack
from gpu.ntt import launch
from gpu.ntt.domain import Domain
from gpu.ntt.launch import TILE, DeviceDomain, multiply, n_bytes, passes, quotient
from gpu.ntt.reference import evaluate
from tests.gpu.ptx.device import EmulatedDevice

pytestmark = pytest.mark.prover

Put = Callable[[np.ndarray], Buffer]


def draw(rng: random.Random, r: int, n: int) -> list[int]:
    return [rng.choice([0, 1, 2, r - 1, r - 2, rng.randrange(r)]) for _ in range(n)]


def montgomery(curve: Curve, values: list[int]) -> np.ndarray:
    return pack(curve.fr.to_montgomery(value) for value in values)


def integers(data: np.ndarray) -> list[int]:
    raw = data.tobytes()
    return [int.from_bytes(raw[i : i + 32], "little") for i in range(0, len(raw), 32)]


def plain(curve: Curve, data: np.ndarray) -> list[int]:
    return [curve.fr.from_montgomery(value) for value in integers(data)]


@pytest.mark.parametrize("log_n", range(1, 13))
def test_to_odd_coset_equals_the_cpu(device: EmulatedDevice, put: Put, curve: Curve, log_n: int) -> None:
    x = montgomery(curve, draw(random.Random(log_n), curve.r, 1 << log_n))
    moved = put(x)
    with_tables = device.used
    domain = DeviceDomain(device, curve, 1 << log_n)
    assert device.used - with_tables == n_bytes(curve, 1 << log_n)
    domain.to_odd_coset(moved)
    domain.free()
    Domain(curve, 1 << log_n).to_odd_coset(x)
    assert np.array_equal(device.download(moved).view(np.uint64), x)


def test_to_odd_coset_equals_the_definition(device: EmulatedDevice, put: Put, curve: Curve) -> None:
    r, log_n = curve.r, 5
    coefficients = draw(random.Random(1), r, 1 << log_n)
    x = put(montgomery(curve, evaluate(coefficients, curve.roots[log_n], 1, r)))
    domain = DeviceDomain(device, curve, 1 << log_n)
    domain.to_odd_coset(x)
    domain.free()
    wanted = evaluate(coefficients, curve.roots[log_n], curve.roots[log_n + 1], r)
    assert plain(curve, device.download(x)) == wanted


@pytest.mark.parametrize(
    "shape",
    [[(0, 4), (4, 4), (8, 4)], [(0, 10), (10, 2)], [(0, 2), (2, 2), (4, 8)], [(0, 3), (3, 1), (4, 1), (5, 7)]],
    ids=str,
)
def test_every_shape_of_passes(
    device: EmulatedDevice, put: Put, curve: Curve, shape: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three and more passes, as large sizes have them; tiles of fewer neighbours than columns; passes of one step."""
    monkeypatch.setattr(launch, "passes", lambda log_n: shape)
    x = montgomery(curve, draw(random.Random(7), curve.r, 1 << 12))
    moved = put(x)
    domain = DeviceDomain(device, curve, 1 << 12)
    domain.to_odd_coset(moved)
    domain.free()
    Domain(curve, 1 << 12).to_odd_coset(x)
    assert np.array_equal(device.download(moved).view(np.uint64), x)


@pytest.mark.parametrize("log_n", range(1, 28))
def test_passes_do_every_step_once(log_n: int) -> None:
    found = passes(log_n)
    steps = [level for low, count in found for level in range(low, low + count)]
    assert steps == list(range(log_n))
    assert all(1 <= count <= TILE for _, count in found)
    for low, count in found:
        columns = min(TILE, log_n) - count
        assert low == 0 or min(low, columns) >= 2, "rows of at least 128 bytes"
    assert len(found) == (1 if log_n <= 10 else 2 if log_n <= 18 else 3 if log_n <= 26 else 4)


def test_without_memory_nothing_stays(curve: Curve) -> None:
    need = n_bytes(curve, 64)
    for total in (need - 1, 10):
        device = EmulatedDevice(total=total)
        with pytest.raises(OutOfDeviceMemory):
            DeviceDomain(device, curve, 64)
        assert device.used == 0
    domain = DeviceDomain(EmulatedDevice(total=need), curve, 64)
    domain.free()


@pytest.mark.parametrize("size", [0, 1, 3, 1 << 28])
def test_sizes_that_are_none(size: int) -> None:
    with pytest.raises(ValueError, match="no domain size"):
        DeviceDomain(EmulatedDevice(), BN254, size)


@pytest.mark.parametrize("n", [1, 255, 300])
def test_products_and_quotients(device: EmulatedDevice, put: Put, curve: Curve, n: int) -> None:
    r, rng = curve.r, random.Random(n)
    a, b, c = (draw(rng, r, n) for _ in range(3))
    in_a, in_b, in_c = (put(montgomery(curve, values)) for values in (a, b, c))
    out = put(np.zeros(4 * n, np.uint64))
    multiply(device, curve, out, in_a, in_b, n)
    assert plain(curve, device.download(out)) == [x * y % r for x, y in zip(a, b, strict=True)]
    quotient(device, curve, in_a, in_b, in_c, n)
    assert integers(device.download(in_a)) == [(x * y - z) % r for x, y, z in zip(a, b, c, strict=True)]
