"""Are the points of a key on their curve and in their subgroup? Fast enough for every point of every key.

On curve: each point by itself. In the subgroup: by sums over random subsets (the small exponents test of Bellare,
Garay, Rabin, EUROCRYPT 1998, with exponents 0 and 1). Each point is in each subset or not by a fair coin; where a
bad point is, two sums that differ only in its coin can't both lie in the subgroup, so a subset misses with
probability 1/2 at most whatever the other points are, and SUBSETS of them miss with at most 2^-64. A round throws
every point into one of 2^c buckets, which is c coins at once, and adds the buckets up to c subset sums; only these
sums are put to the exact test of `membership`. BN254's G1 has prime order and needs none of this.

Sections are read range by range, so a mapped key larger than memory streams through.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from gpu.curve.endomorphism import relation
from gpu.curve.group import KernelGroup
from gpu.curve.membership import first_outside
from gpu.curve.scalar import add_affine, add_sum, valid_affine
from gpu.field.compiled import kernel
from gpu.field.scalar import sub

SUBSETS = 64
_SMALL_RANGE, _LARGE_RANGE = 1 << 12, 1 << 17  # points to a task: enough to pay for its buckets, and not all memory
_EXACT = 64  # so few points are tested one by one


@dataclass(frozen=True)
class Fault:
    """Point `index` of section `section` (counted as given) is no point of the group, and `why`."""

    section: int
    index: int
    why: str


@dataclass(frozen=True)
class _Range:
    """Points [begin, end) of a section, with the coins of a round for c subsets at a time."""

    group: KernelGroup
    section: int
    points: np.ndarray
    begin: int
    end: int
    width: int

    @property
    def rounds(self) -> int:
        return -(-SUBSETS // self.width) if relation(self.group.curve, self.group.kind.degree) else 0

    @property
    def count(self) -> int:
        """Subset sums that `inspect` gives."""
        return self.rounds * self.width

    def inspect(self) -> tuple[int, np.ndarray]:
        """The index of a point that is off the curve or not reduced, or -1; and the subset sums."""
        n, group = self.end - self.begin, self.group
        coins = np.frombuffer(bytearray(secrets.token_bytes(2 * self.rounds * n)), np.uint16)
        buckets = group.sums(1 << self.width if self.rounds else 0)
        sums = group.sums(self.count)
        marker, points = group.kind.marker, self.points
        bad = inspect_range(
            marker, points, self.begin, self.end, group.b, coins, self.width, self.rounds, buckets, sums
        )
        return bad, sums

    def locate(self) -> int:
        """A point outside the subgroup in a range whose sums say that there is one."""
        begin, end = self.begin, self.end
        while end - begin > _EXACT:
            middle = (begin + end) // 2
            half = _Range(self.group, self.section, self.points, begin, middle, _width(middle - begin))
            if _outside(self.group, [half.inspect()[1]], half.count):
                end = middle
            else:
                begin = middle
        found = first_outside(
            self.group.kind.marker, self.points, begin, end, self.group.sums(0), 0, 0, self.group.sums(1)
        )
        return max(found, begin)


def first_fault(sections: Sequence[tuple[KernelGroup, np.ndarray]], pool: Executor, threads: int) -> Fault | None:
    """A point of the sections (uint8, as a `.zkey` holds them) that is not reduced, off its curve or outside its
    subgroup, or None. A point outside goes unseen with probability at most 2^-64.
    """
    ranges = [each for i in range(len(sections)) for each in _ranges(i, sections, threads)]
    # Every part is awaited, also after a bad one: a thread must not read the mapped file once its owner has gone.
    parts = [pool.submit(each.inspect) for each in ranges]
    found = [part.result() for part in parts]
    for each, (bad, _) in zip(ranges, found, strict=True):
        if bad >= 0:
            return Fault(each.section, bad, "is not on the curve, or has a coordinate not below p")
    for group in {each.group.kind.degree: each.group for each in ranges if each.rounds}.values():
        own = [(each, sums) for each, (_, sums) in zip(ranges, found, strict=True) if each.group is group]
        if not _outside(group, [sums for _, sums in own], own[0][0].count):
            continue
        for each, sums in own:
            if _outside(group, [sums], each.count):
                return Fault(each.section, each.locate(), "is outside the subgroup of order r")
    return None


def _outside(group: KernelGroup, rows: Sequence[np.ndarray], count: int) -> bool:
    """Whether some column sum of the rows of subset sums is outside the subgroup."""
    sums, nothing = np.concatenate(rows), np.zeros(0, np.uint8)
    return first_outside(group.kind.marker, nothing, 0, 0, sums, len(rows), count, group.sums(1)) >= 0


def _width(n: int) -> int:
    """Coins to a round for ranges of n points, by the additions: one mixed one a point, two full ones a bucket."""
    return min(range(4, 15), key=lambda c: -(-SUBSETS // c) * (n + 2.8 * (1 << c)))


def _ranges(section: int, sections: Sequence[tuple[KernelGroup, np.ndarray]], threads: int) -> list[_Range]:
    """A section cut into tasks; the width is the same for all sections of a group, since their sums are added."""
    group, points = sections[section]
    longest = max(len(other) for owner, other in sections if owner is group) // group.point_bytes
    step = min(_LARGE_RANGE, max(_SMALL_RANGE, -(-longest // threads)))
    width, n = _width(min(step, longest)), len(points) // group.point_bytes
    return [_Range(group, section, points, begin, min(begin + step, n), width) for begin in range(0, n, step)]


@kernel
def inspect_range(F, points, begin, end, b, coins, width, rounds, buckets, sums):
    """The index of the first point in [begin, end) that is not reduced or off y^2 = x^3 + b[0], or -1. Else also
    sums[round * width + k] += the points whose coins have bit k. `coins`: rounds * (end - begin) numbers. `buckets`:
    2^width XYZZ points of scratch.
    """
    for i in range(begin, end):
        if not valid_affine(F, points, i, b, 0):
            return i
    n, mask = end - begin, (1 << width) - 1
    for turn in range(rounds):
        for j in range(1, 1 << width):
            sub(F, buckets, 4 * j + 2, buckets, 4 * j + 2, buckets, 4 * j + 2)
        for i in range(n):
            j = np.int64(coins[turn * n + i]) & mask
            if j:
                add_affine(F, buckets, j, points, begin + i, False)
        # From the highest bit down: its upper half of the buckets makes the sum, and is folded onto the lower half.
        for k in range(width - 1, -1, -1):
            half = 1 << k
            for j in range(half, 2 * half):
                add_sum(F, sums, turn * width + k, buckets, j)
                if j > half:
                    add_sum(F, buckets, j - half, buckets, j)
    return -1
