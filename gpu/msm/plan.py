"""An MSM from whole arrays: chooses the window, splits the work over stripes of points and groups of windows.

Pippenger's bucket method (Bernstein, Doumen, Lange, Oosterwijk, "Faster batch forgery identification", INDOCRYPT
2012, section 4). A stripe of points is read once for all its windows, stripe after stripe, so a key larger than memory
streams through. Buckets are affine points that live as long as their group of windows; many cores get several sets of
them. In the end buckets are merged by the bits of their numbers, two additions a bucket, in the same batches.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from gpu.curve.group import KernelGroup
from gpu.curve.reference import Point
from gpu.msm.batch import Room
from gpu.msm.bits import sum_of_bits
from gpu.msm.digits import arrange, measure, merge_items, sort_window

MAX_WINDOW = 16
_FEW = 24  # points; up to here bit by bit is faster
_ITEMS = 1 << 19  # references that one task sorts and adds
_MIN_STRIPE = 1 << 12


def best_window(longest: int, total_bits: int, n: int) -> int:
    """The window width with the fewest additions for n scalars of so many bits: one a digit, and for each bucket that
    is not empty two, less the first point in it.
    """

    def additions(c: int) -> float:
        return total_bits / c + n / 2 + (longest // c + 1) * min(n, 1 << (c - 1))

    return min(range(2, MAX_WINDOW + 1), key=additions)


def pack(scalars: Iterable[int]) -> np.ndarray:
    """Plain scalars as kernels take them: four uint64 words each."""
    return np.frombuffer(bytearray(b"".join(value.to_bytes(32, "little") for value in scalars)), np.uint64)


@dataclass
class _Stripe:
    """Scalars of a range of points as `arrange` leaves them, made by whoever comes first, dropped by the last."""

    begin: int
    end: int
    users: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    magnitudes: np.ndarray | None = None
    refs: np.ndarray | None = None
    counts: np.ndarray | None = None


@dataclass
class _Buckets:
    """The buckets of a group of windows, and their sums by bits once `stripes` reaches zero."""

    windows: range
    stripes: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    slots: np.ndarray | None = None


class _Work:
    """The work of one MSM as tasks that may run in any order and at the same time."""

    def __init__(self, group: KernelGroup, points: np.ndarray, scalars: np.ndarray, threads: int, lanes: int) -> None:
        order = group.curve.r
        self._group = group
        self._lanes = lanes
        self._scalars = scalars
        self._points = points.view(np.uint8)
        self._points.flags.writeable = False
        self._order = pack((order, order >> 1))
        longest, total_bits, n = measure(scalars, self._order)
        self.tasks: list[tuple[_Stripe, _Buckets]] = []
        self._all: list[_Buckets] = []
        if not n:
            return
        self._c = best_window(longest, total_bits, n)
        self._n_windows = longest // self._c + 1
        self._split(len(scalars) // 4, threads)

    def _split(self, n: int, threads: int) -> None:
        """Stripes and sets of buckets: two tasks a thread at least, if there are enough points."""
        n_groups = min(self._n_windows, max(4, 2 * threads))
        each = -(-self._n_windows // n_groups)
        starts = range(0, self._n_windows, each)
        n_sets = max(1, -(-threads // len(starts)))
        step = max(min(_MIN_STRIPE, n), min(_ITEMS // each, -(-n // n_sets)))
        stripes = [_Stripe(begin, min(begin + step, n), len(starts)) for begin in range(0, n, step)]
        n_sets = min(n_sets, len(stripes))
        for k in range(n_sets):
            used = len(stripes[k::n_sets])
            self._all += [_Buckets(range(w, min(w + each, self._n_windows)), used) for w in starts]
        self.tasks = [
            (stripe, buckets)
            for i, stripe in enumerate(stripes)
            for buckets in self._all[i % n_sets * len(starts) :][: len(starts)]
        ]

    def run(self, stripe: _Stripe, buckets: _Buckets) -> None:
        """One stripe into one group of buckets."""
        self._prepare(stripe)
        with buckets.lock:
            self._collect(stripe, buckets)
            buckets.stripes -= 1
            if not buckets.stripes:
                self._merge(buckets)
        with stripe.lock:
            stripe.users -= 1
            if not stripe.users:
                stripe.magnitudes = stripe.refs = None

    def _prepare(self, stripe: _Stripe) -> None:
        with stripe.lock:
            if stripe.counts is not None:
                return
            n = stripe.end - stripe.begin
            stripe.magnitudes, stripe.refs = np.empty(4 * n, np.uint64), np.empty(n, np.int32)
            stripe.counts = arrange(
                self._scalars, stripe.begin, stripe.end, self._points, self._group.point_bytes, self._order,
                self._c, self._n_windows, stripe.magnitudes, stripe.refs, np.empty(n, np.uint8),
            )  # fmt: skip

    def _collect(self, stripe: _Stripe, buckets: _Buckets) -> None:
        c, half, windows = self._c, 1 << (self._c - 1), buckets.windows
        if buckets.slots is None:
            words = self._group.point_bytes // 8
            buckets.slots = np.zeros(len(windows) * (half + c) * words, np.uint64)
        assert stripe.counts is not None
        room_for = int(stripe.counts[windows.start : windows.stop].sum())
        targets, refs = (np.empty(room_for, np.int32) for _ in range(2))
        scratch, n = np.empty(half + 1, np.int64), 0
        for k, w in enumerate(windows):
            n = sort_window(
                stripe.magnitudes, stripe.refs, stripe.counts[w], w, c, w == self._n_windows - 1,
                k * half, targets, refs, n, scratch,
            )  # fmt: skip
        Room(self._group, self._lanes).accumulate(buckets.slots, self._points, targets, refs, n)

    def _merge(self, buckets: _Buckets) -> None:
        """Leaves in `slots` only the sums of the buckets whose number has bit k, for each window and k < c."""
        c, half, windows, slots = self._c, 1 << (self._c - 1), len(buckets.windows), buckets.slots
        assert slots is not None
        words, room = self._group.point_bytes // 8, Room(self._group, self._lanes)
        targets, refs = (np.empty(windows * half, np.int32) for _ in range(2))
        for level in range(c):
            n = merge_items(slots, words, level, c, windows, targets, refs)
            room.accumulate(slots, slots, targets, refs, n)
        buckets.slots = slots[windows * half * words :].copy()

    def total(self) -> Point:
        """The sum, once every task has run."""
        if not self._all:
            return None
        at_bits: list[list[int]] = [[] for _ in range(self._n_windows * self._c)]
        i = 0
        for buckets in self._all:
            for bit in range(buckets.windows.start * self._c, buckets.windows.stop * self._c):
                at_bits[bit].append(i)
                i += 1
        sums = [buckets.slots for buckets in self._all if buckets.slots is not None]
        return sum_of_bits(self._group, np.concatenate(sums), at_bits)


class Msm:
    """The sum of scalars[i] * points[i]: queued on the pool at once, waited for by `result`.

    `points`: n affine points in `.zkey` form (uint8), read where they lie. `scalars`: n times four uint64 words, plain
    form, below r; both must stay until `result`. `lanes`: 1, or 8 for the vector back end.
    """

    def __init__(
        self, group: KernelGroup, points: np.ndarray, scalars: np.ndarray, pool: Executor, threads: int, lanes: int = 1
    ) -> None:
        self._work = _Work(group, points, scalars, threads, lanes)
        self._parts = [pool.submit(self._work.run, *task) for task in self._work.tasks]

    def result(self) -> Point:
        for part in self._parts:
            part.result()
        return self._work.total()


def small(group: KernelGroup, points: np.ndarray, scalars: Sequence[int]) -> Point:
    """The sum of scalars[i] * points[i] on the calling thread, for few points and any integers."""
    values = [scalar % group.curve.r for scalar in scalars]
    if len(values) <= _FEW:
        bits = range(max(values, default=0).bit_length())
        return sum_of_bits(group, points, [[i for i, value in enumerate(values) if value >> bit & 1] for bit in bits])
    work = _Work(group, points, pack(values), 1, 1)
    for task in work.tasks:
        work.run(*task)
    return work.total()
