"""An MSM from whole arrays: chooses the window, splits the work over windows and points, and adds up.

Every task is one (window, range of points) on one thread, so that many cores find work even with few windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor

import numpy as np

from gpu.curve.group import KernelGroup
from gpu.curve.reference import Point
from gpu.msm.scalar import horner, signed_digits, window_sum

MAX_WINDOW = 15  # digits are int16, and 2^14 buckets of a G2 point still fit the second-level cache
_MIN_RANGE = 1 << 15  # below this many points a second range would only repeat the bucket sums


def best_window(n: int, bits: int) -> int:
    """The window width with the least work: additions into buckets, and about 2.8 a bucket to sum them."""
    return min(range(2, MAX_WINDOW + 1), key=lambda c: -(-bits // c) * (n + 2.8 * (1 << (c - 1))))


def pack(scalars: Iterable[int]) -> np.ndarray:
    """Plain scalars as kernels take them: four uint64 words each."""
    return np.frombuffer(bytearray(b"".join(value.to_bytes(32, "little") for value in scalars)), np.uint64)


class _Windows:
    """The work of one MSM: digits made, a slot for the sum of each window of each range."""

    def __init__(self, group: KernelGroup, points: np.ndarray, scalars: np.ndarray, threads: int) -> None:
        n = len(scalars) // 4
        bits = group.curve.r.bit_length() + 1  # the top digit may grow by a carry
        self._group = group
        self._points = points
        self._c = best_window(max(n, 1), bits)
        n_windows = -(-bits // self._c)
        self._digits = np.empty((n_windows, n), np.int16)
        signed_digits(scalars, n, self._c, n_windows, self._digits)
        step = _range(n, n_windows, threads)
        self._ranges = [(begin, min(begin + step, n)) for begin in range(0, n, step)]
        self._sums = group.sums(n_windows * len(self._ranges))
        self.tasks = [(w, k) for w in range(n_windows) for k in range(len(self._ranges))]

    def run(self, w: int, k: int) -> None:
        group, (begin, end) = self._group, self._ranges[k]
        n_buckets = 1 << (self._c - 1)
        buckets, running = group.sums(n_buckets), group.sums(1)
        digits, slot = self._digits[w], w * len(self._ranges) + k
        marker = group.kind.marker
        window_sum(marker, self._points, digits, begin, end, buckets, n_buckets, running, self._sums, slot)

    def total(self) -> Point:
        """Horner's rule over the windows, once every task has run."""
        out = self._group.sums(1)
        n_windows = len(self._digits)
        horner(self._group.kind.marker, self._sums, n_windows, len(self._ranges), self._c, out)
        return self._group.to_affine(out)


def _range(n: int, n_windows: int, threads: int) -> int:
    """Points to a task: all of them, unless there are more threads than windows and enough points."""
    ranges = min(2 * -(-threads // n_windows) if threads > n_windows else 1, n // _MIN_RANGE)
    return max(1, -(-n // max(1, ranges)))


class Msm:
    """The sum of scalars[i] * points[i]: queued on the pool at once, waited for by `result`.

    `points`: n affine points in `.zkey` form (uint8). `scalars`: n times four uint64 words, plain form, below
    r.
    """

    def __init__(
        self, group: KernelGroup, points: np.ndarray, scalars: np.ndarray, pool: Executor, threads: int
    ) -> None:
        self._windows = _Windows(group, points, scalars, threads)
        self._parts = [pool.submit(self._windows.run, w, k) for w, k in self._windows.tasks]

    def result(self) -> Point:
        for part in self._parts:
            part.result()
        return self._windows.total()


def small(group: KernelGroup, points: np.ndarray, scalars: Sequence[int]) -> Point:
    """The sum of scalars[i] * points[i] on the calling thread, for a handful of points and any integers."""
    windows = _Windows(group, points, pack(scalar % group.curve.r for scalar in scalars), 1)
    for w, k in windows.tasks:
        windows.run(w, k)
    return windows.total()
