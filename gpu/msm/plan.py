"""An MSM from whole arrays: chooses the window, splits the work over windows and points, and adds up.

Every task is one (window, range of points) on one thread, so that many cores find work even with few windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor

import numpy as np

from gpu.curve.group import KernelGroup
from gpu.curve.reference import Point
from gpu.msm.scalar import accumulate, gather, horner, signed_digits, straus, weighted_sum

MAX_WINDOW = 15  # digits are int16, and 2^14 buckets of a G2 point still fit the second-level cache
_MIN_RANGE = 1 << 15  # below this many points a second range would only repeat the bucket sums


def best_window(n: int, bits: int) -> int:
    """The window width with the least work: additions into buckets, and about 2.8 a bucket to sum them."""
    return min(range(2, MAX_WINDOW + 1), key=lambda c: -(-bits // c) * (n + 2.8 * (1 << (c - 1))))


def pack(scalars: Iterable[int]) -> np.ndarray:
    """Plain scalars as kernels take them: four uint64 words each."""
    return np.frombuffer(bytearray(b"".join(value.to_bytes(32, "little") for value in scalars)), np.uint64)


def small(group: KernelGroup, points: np.ndarray, scalars: Sequence[int]) -> Point:
    """The sum of scalars[i] * points[i] on the calling thread, for a handful of points (any size is
    right).
    """
    out = group.sums(1)
    reduced = pack(scalar % group.curve.r for scalar in scalars)
    straus(group.kind.marker, points, reduced, len(scalars), out)
    return group.to_affine(out)


class Msm:
    """The sum of scalars[i] * points[i]: queued on the pool at once, waited for by `result`.

    `points`: n affine points in `.zkey` form (uint8). `scalars`: n times four uint64 words, plain form, below
    r.
    """

    def __init__(
        self, group: KernelGroup, points: np.ndarray, scalars: np.ndarray, pool: Executor, threads: int
    ) -> None:
        n = len(scalars) // 4
        bits = group.curve.r.bit_length() + 1  # the top digit may grow by a carry
        self._group = group
        self._c = best_window(max(n, 1), bits)
        self._windows = -(-bits // self._c)
        self._digits = np.empty((self._windows, n), np.int16)
        signed_digits(scalars, 0, n, self._c, self._windows, self._digits)
        step = self._range(n, threads)
        self._parts = [
            (w, pool.submit(self._window, points, w, begin, min(begin + step, n)))
            for w in range(self._windows)
            for begin in range(0, n, step)
        ]

    def _range(self, n: int, threads: int) -> int:
        """Points to a task: all of them, unless there are more threads than windows and enough points."""
        ranges = min(2 * -(-threads // self._windows) if threads > self._windows else 1, n // _MIN_RANGE)
        return max(1, -(-n // max(1, ranges)))

    def _window(self, points: np.ndarray, w: int, begin: int, end: int) -> np.ndarray:
        group, marker = self._group, self._group.kind.marker
        n_buckets = 1 << (self._c - 1)
        buckets, out = group.sums(n_buckets), group.sums(2)
        accumulate(marker, points, self._digits[w], begin, end, buckets)
        weighted_sum(marker, buckets, n_buckets, out)
        return out

    def result(self) -> Point:
        """Waits for every part; Horner's rule over the windows."""
        group, marker = self._group, self._group.kind.marker
        sums, out = group.sums(self._windows), group.sums(1)
        for w, part in self._parts:
            gather(marker, sums, w, part.result())
        horner(marker, sums, self._windows, self._c, out)
        return group.to_affine(out)
