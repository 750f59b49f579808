"""An MSM from whole arrays: chooses the window, splits the work over windows and points, and adds up.

Every task is one (window, range of points) on one thread, so that many cores find work even with few windows.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor, Future

import numpy as np

from gpu.curve.group import KernelGroup
from gpu.curve.reference import Point
from gpu.msm.scalar import accumulate, signed_digits, weighted_sum

MAX_WINDOW = 15  # digits are int16, and 2^14 buckets of a G2 point still fit the second-level cache
_MIN_RANGE = 1 << 15  # below this many points a second range would only repeat the bucket sums


def best_window(n: int, bits: int) -> int:
    """The window width with the least work: additions into buckets, and about 2.8 a bucket to sum them."""
    return min(range(2, MAX_WINDOW + 1), key=lambda c: -(-bits // c) * (n + 2.8 * (1 << (c - 1))))


def msm(group: KernelGroup, points: np.ndarray, scalars: np.ndarray, pool: Executor, threads: int) -> Point:
    """The sum of scalars[i] * points[i].

    `points`: n affine points in `.zkey` form (uint8). `scalars`: n times four uint64 words, plain form, below
    r.
    """
    return start(group, points, scalars, pool, threads)()


class start:
    """Queues an MSM on the pool at once; calling the object waits and returns the point."""

    def __init__(
        self, group: KernelGroup, points: np.ndarray, scalars: np.ndarray, pool: Executor, threads: int
    ) -> None:
        n = len(scalars) // 4
        self._group = group
        self._c = best_window(max(n, 1), group.curve.r.bit_length() + 1)
        self._windows = -(-(group.curve.r.bit_length() + 1) // self._c)
        self._digits = np.empty((self._windows, n), np.int16)
        signed_digits(scalars, 0, n, self._c, self._windows, self._digits)
        ranges = max(1, min(-(-threads // self._windows) * 2 if threads > self._windows else 1, n // _MIN_RANGE))
        step = -(-n // ranges) if n else 1
        self._parts: list[list[Future[np.ndarray]]] = [
            [pool.submit(self._window, points, w, begin, min(begin + step, n)) for begin in range(0, n, step)]
            for w in range(self._windows)
        ]

    def _window(self, points: np.ndarray, w: int, begin: int, end: int) -> np.ndarray:
        group, marker = self._group, self._group.kind.marker
        n_buckets = 1 << (self._c - 1)
        buckets, out = group.sums(n_buckets), group.sums(2)
        accumulate(marker, points, self._digits[w], begin, end, buckets)
        weighted_sum(marker, buckets, n_buckets, out)
        return out

    def __call__(self) -> Point:
        """Horner over the windows, from the highest: the last few hundred additions, on Python ints."""
        group = self._group.reference
        total: Point = None
        for parts in reversed(self._parts):
            for _ in range(self._c):
                total = group.add(total, total)
            for sums in _results(parts):
                total = group.add(total, self._group.to_affine(sums))
        return total


def _results(parts: Iterable[Future[np.ndarray]]) -> list[np.ndarray]:
    return [part.result() for part in parts]
