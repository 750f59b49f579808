"""How a GPU does a multi-scalar multiplication of a given size: windows, rounds, slices, and the memory they take.

Pure arithmetic. The costs are a model made from the number of point additions, not measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

DEFAULT_ENTRIES = 1 << 27
"""Scalars times windows that are sorted at once: 1 GiB of digits and entries."""

RUN = 16
"""Digits that a thread of the sorting kernels does one after the other."""
SCAN_THREADS = 256
SCAN_ITEMS = 8
"""Neighbours that a thread of a prefix sum adds up by itself. Two levels of such blocks reach far beyond MAX_BUCKETS.
"""
MAX_BUCKETS = 1 << 20
MAX_C = 17
"""Where digits are scattered, a place in each bucket of a window is open: 2^16 sectors of 32 bytes fit every GPU's
cache.
"""
_MAX_WINDOWS = 128
"""Of two bits each."""
_MIN_SLICE = 32
_THREADS = 1 << 15
"""Adding at the same time, about: of a GPU of 128 multiprocessors. A constant, so that memory can be planned without
a GPU.
"""


@dataclass(frozen=True)
class Schedule:
    """`n` scalars in `n_windows` windows of `c` bits, `per_round` of them at a time; see `gpu.msm.sorting`."""

    n: int
    c: int
    n_windows: int
    per_round: int

    @property
    def buckets_per_window(self) -> int:
        return 1 << (self.c - 1)

    @property
    def n_buckets(self) -> int:
        """Of a round."""
        return self.per_round * self.buckets_per_window

    @property
    def slice_length(self) -> int:
        """Entries of a slice, at most: twice the mean of a full window, so that most buckets are one slice."""
        return max(_MIN_SLICE, 2 * -(-self.n // self.buckets_per_window))

    @property
    def max_extra(self) -> int:
        """Slices beyond the first of their buckets: each takes slice_length entries. At most half the buckets."""
        return self.n * self.per_round // self.slice_length

    @property
    def max_slices(self) -> int:
        return self.n_buckets + self.n_buckets // 2

    def sizes(self, sum_bytes: int) -> dict[str, int]:
        """Bytes of each array; `sum_bytes` those of an XYZZ point. All grow with n, c and per_round."""
        entries, places = self.n * self.per_round, self.n_buckets + 1
        return {
            "digits": 4 * entries,
            "entries": 4 * entries,
            "counts": 4 * places,
            "starts": 4 * places,
            "extra_starts": 4 * places,
            "totals": 4 * (-(-max(places, self.slice_length + 1) // (SCAN_THREADS * SCAN_ITEMS)) + 1),
            "classes": 4 * (self.slice_length + 1),
            "tasks": 12 * self.max_slices,
            "sums": sum_bytes * self.max_slices,
            "exceptions": 8 * self.max_slices,
            "n_exceptions": 4,
            "windows": sum_bytes * _MAX_WINDOWS,
            "constants": 4 * 27,
        }

    def cost(self) -> float:
        """Additions, one after the other, weighted by their multiplications (10 mixed, 14 full)."""
        mixed = self.n * self.n_windows / _THREADS + self.n / self.buckets_per_window
        # Merging is two additions a bucket and a step a bit, the end of a window two steps a bit; the few threads of
        # the last steps have the GPU for themselves and are twice as fast.
        rounds = -(-self.n_windows // self.per_round)
        full = 2 * self.n_windows * self.buckets_per_window / _THREADS + rounds * 3 * self.c / 2
        return 10 * mixed + 14 * full


def n_windows(order: int, c: int) -> int:
    """Windows of c bits that hold any scalar up to half the order, with a sign."""
    count = 1
    while not order // 2 <= middle(c, count) < (1 << c * count) - order // 2:
        count += 1
    return count


def middle(c: int, count: int) -> int:
    """The number whose `count` digits of c bits are all 2^(c-1)."""
    return (1 << (c - 1)) * ((1 << c * count) - 1) // ((1 << c) - 1)


@lru_cache
def candidates(order: int, n: int, entries: int, c: int | None = None) -> list[Schedule]:
    """Every schedule for n scalars (at least 1, at most `entries`), the cheapest first; only those of `c` if given."""
    out = []
    for width in range(2, MAX_C + 1) if c is None else (c,):
        count = n_windows(order, width)
        per_round = min(count, entries // n, MAX_BUCKETS >> (width - 1))
        rounds = -(-count // per_round)
        out.append(Schedule(n, width, count, -(-count // rounds)))
    return sorted(out, key=Schedule.cost)


def best(order: int, n: int, entries: int, c: int | None = None) -> Schedule:
    """The cheapest schedule for n scalars below `order`."""
    return candidates(order, n, entries, c)[0]


@lru_cache
def fitting(order: int, sum_bytes: int, n: int, entries: int, made: Schedule, c: int | None = None) -> Schedule:
    """The cheapest schedule for n scalars whose arrays fit into those of `made`, which is for at least as many."""
    room = made.sizes(sum_bytes)
    found = [replace(made, n=n)]
    for schedule in candidates(order, n, entries, c):
        for per_round in range(schedule.per_round, 0, -1):
            fewer = replace(schedule, per_round=per_round)
            if all(size <= room[name] for name, size in fewer.sizes(sum_bytes).items()):
                found.append(fewer)
                break
    return min(found, key=Schedule.cost)
