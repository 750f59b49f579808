"""The kernels that sort scalars into buckets, one by one, against plain Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from gpu.cuda.device import Buffer
from gpu.curve.params import Curve
from gpu.msm import schedule
from gpu.msm.plan import pack
from gpu.msm.schedule import MAX_C, RUN, SCAN_ITEMS, SCAN_THREADS
from tests.gpu.ptx.device import EmulatedDevice

pytestmark = pytest.mark.prover

Put = Callable[[np.ndarray], Buffer]
SIGN = 1 << 31
SCAN = SCAN_THREADS * SCAN_ITEMS


def words(device: EmulatedDevice, buffer: Buffer) -> np.ndarray:
    return device.download(buffer).view(np.uint32)


def signed(word: int) -> int:
    return -(word - SIGN) if word >= SIGN else word


@pytest.mark.parametrize("c", range(2, MAX_C + 1))
def test_digits(device: EmulatedDevice, put: Put, curve: Curve, c: int) -> None:
    """All windows at once and in two rounds; together they are the scalar, or the scalar less the order."""
    r, rng = curve.r, random.Random(c)
    scalars = [0, 1, r - 1, r // 2, r // 2 + 1, r // 2 - 1, 1 << (c - 1), (1 << c) - 1, r - (1 << (c - 1)), 1 << 252]
    scalars += [rng.randrange(r) for _ in range(5)]
    n, count = len(scalars), schedule.n_windows(r, c)
    middle = schedule.middle(c, count)
    constants = b"".join((x % (1 << 288)).to_bytes(36, "little") for x in (r // 2, middle, middle - r))
    arrays = (put(pack(scalars)), put(np.frombuffer(constants, np.uint8)))
    found = []
    for first, last in ((0, count), (0, count // 3), (count // 3, count)):
        out = put(np.zeros(n * (last - first), np.uint32))
        device.launch(f"{curve.name}_msm_digits", 1, 32, *arrays, out, n, c, first, last - first)
        found.append(words(device, out).reshape(last - first, n))
    assert np.array_equal(found[0], np.concatenate(found[1:]))
    for i, scalar in enumerate(scalars):
        digits = [signed(int(word)) for word in found[0][:, i]]
        assert all(abs(digit) <= 1 << (c - 1) for digit in digits)
        total = sum(digit << c * w for w, digit in enumerate(digits))
        assert total == (scalar if scalar <= r // 2 else scalar - r)


@pytest.mark.parametrize("n", [1, 8, 9, SCAN - 1, SCAN, SCAN + 1, 3 * SCAN + 5])
@pytest.mark.parametrize("slice_length", [0, 1, 3])
def test_prefix_sums(device: EmulatedDevice, put: Put, curve: Curve, n: int, slice_length: int) -> None:
    rng, blocks = np.random.default_rng(n), -(-n // SCAN)
    counts = rng.integers(0, 9, n).astype(np.uint32)
    weights = np.where(counts == 0, 0, (counts - 1) // slice_length) if slice_length else counts
    values, out, totals = put(counts), put(np.zeros(n, np.uint32)), put(np.zeros(blocks + 1, np.uint32))
    scan, add = f"{curve.name}_msm_scan", f"{curve.name}_msm_scan_add"
    device.launch(scan, blocks, SCAN_THREADS, values, out, totals, n, slice_length)
    device.launch(scan, 1, SCAN_THREADS, totals, totals, totals.at(4 * blocks), blocks, 0)
    device.launch(add, -(-n // SCAN_THREADS), SCAN_THREADS, out, totals, n)
    assert np.array_equal(words(device, out), np.concatenate([[0], np.cumsum(weights)[:-1]]))
    assert words(device, totals)[blocks] == weights.sum()


def equal(rng: random.Random, i: int) -> int:
    return 5


def alternating(rng: random.Random, i: int) -> int:
    return (0, 3, 3 | SIGN)[i // 40 % 3]


def mixed(rng: random.Random, i: int) -> int:
    return rng.choice([0, 1, 1, 7, 8]) | rng.choice([0, SIGN])


@pytest.mark.parametrize("draw", [equal, alternating, mixed])
@pytest.mark.parametrize("n", [1, 33, 32 * RUN, 32 * RUN + 1, 1500])
def test_sorting(device: EmulatedDevice, put: Put, curve: Curve, draw: Callable[..., int], n: int) -> None:
    """Counts and entries of three windows of eight buckets, by blocks of 32 threads."""
    rng, c, windows = random.Random(n), 4, 3
    digits = [[draw(rng, i + w) for i in range(n)] for w in range(windows)]
    for row in digits:
        row[:] = [digit if digit & (SIGN - 1) else 0 for digit in row]
    wanted: Counter[int] = Counter()
    for w, row in enumerate(digits):
        wanted.update(8 * w + (digit & (SIGN - 1)) - 1 for digit in row if digit)
    blocks = -(-n // (32 * RUN))
    stored, counts = put(np.array(digits, np.uint32)), put(np.zeros(8 * windows, np.uint32))
    device.launch(f"{curve.name}_msm_histogram", blocks * windows, 32, stored, counts, n, c, blocks)
    lengths = [wanted[bucket] for bucket in range(8 * windows)]
    assert words(device, counts).tolist() == lengths
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32)
    entries = put(np.zeros(max(1, int(starts[-1])), np.uint32))
    device.launch(f"{curve.name}_msm_scatter", blocks * windows, 32, stored, counts, put(starts), entries, n, c, blocks)
    found = words(device, entries)
    assert not words(device, counts).any()
    for bucket in range(8 * windows):
        w, digit = bucket // 8, bucket % 8 + 1
        inside = sorted(found[starts[bucket] : starts[bucket + 1]].tolist())
        assert inside == sorted(i | (word & SIGN) for i, word in enumerate(digits[w]) if word & (SIGN - 1) == digit)


def test_slices_by_length(device: EmulatedDevice, put: Put, curve: Curve) -> None:
    """Every entry in one slice, slices of a bucket even, further slices behind the buckets, the longest first."""
    length, counts = 6, [0, 3, 6, 7, 0, 0, 30, 1, 0, 13]
    n = len(counts)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    extra = [max(0, -(-count // length) - 1) for count in counts]
    extra_starts = np.concatenate([[0], np.cumsum(extra)]).astype(np.uint32)
    grid = (3, 8)
    arrays = put(starts), put(extra_starts)
    classes = put(np.zeros(length + 1, np.uint32))
    device.launch(f"{curve.name}_msm_lengths", *grid, *arrays, classes, n, length)
    by_class = words(device, classes)
    places = np.concatenate([[0], np.cumsum(by_class)[:-1]]).astype(np.uint32)
    n_tasks = int(by_class.sum())
    assert n_tasks == sum(1 for count in counts if count) + sum(extra)
    cursors, tasks = put(places), put(np.zeros(3 * n_tasks, np.uint32))
    device.launch(f"{curve.name}_msm_order", *grid, *arrays, cursors, tasks, n, length)
    assert words(device, cursors)[length] == n_tasks
    found = words(device, tasks).reshape(-1, 3).astype(int)
    sizes = found[:, 2] - found[:, 1]
    assert (np.diff(sizes) <= 0).all()
    assert sizes.max() <= length
    for bucket, count in enumerate(counts):
        first = n + int(extra_starts[bucket])
        numbers = ([bucket] if count else []) + list(range(first, first + extra[bucket]))
        spans = [(begin, end) for number in numbers for slot, begin, end in found if slot == number]
        assert len(spans) == len(numbers)
        at = int(starts[bucket])
        for begin, end in spans:
            assert begin == at
            assert end - begin >= count // max(1, len(numbers))
            at = end
        assert at == starts[bucket + 1]
