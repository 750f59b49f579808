"""The kernels that add points, one by one: sums in known places, whatever meets whatever."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from gpu.cuda.device import Buffer
from gpu.curve.group import KernelGroup
from gpu.curve.reference import Point
from tests.gpu.ptx.device import EmulatedDevice

pytestmark = pytest.mark.prover

Put = Callable[[np.ndarray], Buffer]
SIGN = 1 << 31


def symbol(group: KernelGroup, name: str) -> str:
    return f"{group.curve.name}_g{group.kind.degree}_{name}"


def xyzz(group: KernelGroup, factors: list[int]) -> np.ndarray:
    """[k]G for each factor as XYZZ points, each with another Z; infinity with whatever in X and Y."""
    f, out = group.reference.field, []
    for i, k in enumerate(factors):
        point = group.reference.mul(group.reference.generator, k)
        z = f.scale(f.one, i + 2)
        zz = f.mul(z, z)
        zzz = f.mul(zz, z)
        values = (z, zz, f.zero, f.zero) if point is None else (f.mul(point[0], zz), f.mul(point[1], zzz), zz, zzz)
        out += [group.element(value) for value in values]
    return np.concatenate(out)


def affine(group: KernelGroup, device: EmulatedDevice, buffer: Buffer, index: int) -> Point:
    return group.to_affine(device.download(buffer).view(np.uint64), index)


def multiple(group: KernelGroup, k: int) -> Point:
    return group.reference.mul(group.reference.generator, k)


def test_full_additions(device: EmulatedDevice, put: Put, group: KernelGroup) -> None:
    """Merging groups of one bucket is a sum for each pair: equal, opposite and infinite points in any scaling."""
    pairs = list(itertools.product([0, 1, -1, 2, 7], repeat=2))
    sums = put(xyzz(group, [k for pair in pairs for k in pair]))
    device.launch(symbol(group, "merge"), 1, 128, sums, 0, len(pairs))
    for i, (left, right) in enumerate(pairs):
        assert affine(group, device, sums, 2 * i) == multiple(group, left + right), (left, right)
        assert affine(group, device, sums, 2 * i + 1) == multiple(group, right)


@pytest.mark.parametrize("log_buckets", [1, 2, 4])
def test_merging_and_the_end_of_windows(device: EmulatedDevice, put: Put, group: KernelGroup, log_buckets: int) -> None:
    """Buckets weigh 1, 2, 3 ... in each of three windows."""
    n = 1 << log_buckets
    factors = [(5 * i * i + i) % 7 - 2 for i in range(3 * n)]
    sums, out = put(xyzz(group, factors)), put(group.sums(3))
    for level in range(log_buckets):
        tasks = (3 * n >> level + 1) * (level + 1)
        device.launch(symbol(group, "merge"), -(-tasks // 8), 8, sums, level, tasks)
    device.launch(symbol(group, "windows"), 3, 1, sums, out, log_buckets, 3)
    for w in range(3):
        total = sum((i + 1) * factors[w * n + i] for i in range(n))
        assert affine(group, device, out, w) == multiple(group, total)


@pytest.mark.parametrize("extra", [1, 2, 3, 4, 5, 18, 70])
def test_joining_the_slices_of_long_buckets(device: EmulatedDevice, put: Put, group: KernelGroup, extra: int) -> None:
    """Of four buckets the first, the third and the last are long."""
    n, more = 4, [extra, 0, 1, 3]
    factors = [1, 0, -1, 2, *[(i % 5) - 2 for i in range(extra)], 1, 4, -4, 2]
    starts = np.cumsum([0, *more]).astype(np.uint32)
    sums, extra_starts = put(xyzz(group, factors)), put(starts)
    stride = 1
    while stride <= max(more):
        device.launch(symbol(group, "join"), -(-len(factors) // 8), 8, sums, extra_starts, n, stride)
        stride *= 4
    for bucket in range(n):
        first, last = n + int(starts[bucket]), n + int(starts[bucket + 1])
        wanted = factors[bucket] + sum(factors[first:last])
        assert affine(group, device, sums, bucket) == multiple(group, wanted)


SLICES = [
    ([], None),
    ([3], None),
    ([0, 0, 0], None),
    ([0, 1, 0, 2, 5, 0], None),
    ([1, 2, 4, 8, -1, -2], None),
    ([5, 5, 1, 2], 1),
    ([5, -5, 1, 2], 1),
    ([0, 5, 0, 5], 3),
    ([1, 2, 4, 7, -14, 14, 3, 0, 9], 3),
    ([2, -2, 2, 2, -4, 0, 4, 4, 8], 1),
    ([1, 1, 2, 4, -8, 8, 8], 1),
]
"""Multiples of G in a slice, and where the first one meets a sum of its own x."""


def test_slices_and_their_exceptions(device: EmulatedDevice, put: Put, group: KernelGroup) -> None:
    """The fast kernel stops just where a sum meets a point of its own x, the slow one goes on from there."""
    known = sorted({abs(k) for factors, _ in SLICES for k in factors})
    points = put(group.encode([multiple(group, k) for k in known]))
    entries = [known.index(abs(k)) | (SIGN if k < 0 else 0) for factors, _ in SLICES for k in factors]
    ends = np.cumsum([0] + [len(factors) for factors, _ in SLICES])
    n = len(SLICES)
    where = [(3 * i + 1) % n for i in range(n)]
    tasks = np.array([[where[i], ends[i], ends[i + 1]] for i in range(n)], np.uint32)
    sums, exceptions = put(np.full(n * 8 * group.kind.words, 77, np.uint64)), put(np.full(2 * n, 99, np.uint32))
    n_exceptions, n_tasks = put(np.zeros(1, np.uint32)), put(np.array([5, n], np.uint32))
    arrays = (points, put(np.array(entries, np.uint32)), put(tasks))
    device.launch(symbol(group, "accumulate"), 2, 8, *arrays, n_tasks, sums, exceptions, n_exceptions, 1)
    wanted = {(i, int(ends[i]) + at) for i, (_, at) in enumerate(SLICES) if at is not None}
    assert device.download(n_exceptions).view(np.uint32).tolist() == [len(wanted)]
    found = device.download(exceptions).view(np.uint32)[: 2 * len(wanted)].reshape(-1, 2)
    assert {(int(task), int(at)) for task, at in found} == wanted
    device.launch(symbol(group, "repair"), 1, 2, *arrays, sums, exceptions, n_exceptions)
    for i, (factors, _) in enumerate(SLICES):
        assert affine(group, device, sums, where[i]) == multiple(group, sum(factors)), factors
