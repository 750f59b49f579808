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
from functools import cache

import numpy as np

from gpu.curve.endomorphism import relation
from gpu.curve.group import KernelGroup
from gpu.curve.membership import first_outside
from gpu.curve.scalar import valid_affine
from gpu.field.compiled import kernel
from gpu.field.operations import is_zero
from gpu.msm.batch import Room

SUBSETS = 64
_SMALL_RANGE, _LARGE_RANGE = 1 << 12, 1 << 17  # points to a task: enough to pay for its buckets, and not all memory
_EXACT = 64  # so few points are tested one by one
_NOTHING = np.zeros(0, np.uint64)


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
    lanes: int

    @property
    def rounds(self) -> int:
        return -(-SUBSETS // self.width) if relation(self.group.curve, self.group.kind.degree) else 0

    @property
    def count(self) -> int:
        """Subset sums that `inspect` gives."""
        return self.rounds * self.width

    def inspect(self) -> tuple[int, np.ndarray]:
        """The index of a point that is off the curve or not reduced, or -1; and the subset sums (affine, uint64)."""
        group, width = self.group, self.width
        finite = np.empty(self.end - self.begin if self.rounds else 0, np.int32)
        bad, n = sift(group.kind.marker, self.points, self.begin, self.end, group.b, self.rounds, finite)
        words = group.point_bytes // 8
        sums = np.zeros(self.count * words, np.uint64)
        if bad >= 0 or n == 0:
            return bad, sums
        room, folding = Room(group, self.lanes), _folding(width)
        for at in range(0, sums.size, width * words):
            coins = np.frombuffer(secrets.token_bytes(2 * n), np.uint16) & ((1 << width) - 1)
            order = np.argsort(coins, kind="stable")
            targets = coins[order].astype(np.int32)
            first = np.searchsorted(targets, 1)  # coins all zero: in no subset
            buckets = np.zeros(words << width, np.uint64)
            room.accumulate(buckets, self.points, targets[first:], 2 * finite[order[first:]], n - first)
            room.accumulate(sums[at : at + width * words], buckets, *folding, len(folding[0]))
        return bad, sums

    def locate(self) -> int:
        """A point outside the subgroup in a range whose sums say that there is one."""
        begin, end = self.begin, self.end
        while end - begin > _EXACT:
            middle = (begin + end) // 2
            width = _width(middle - begin)
            half = _Range(self.group, self.section, self.points, begin, middle, width, self.lanes)
            if _outside(self.group, [half.inspect()[1]], half.count):
                end = middle
            else:
                begin = middle
        found = first_outside(self.group.kind.marker, self.points, begin, end, _NOTHING, 0, 0, self.group.sums(1))
        return max(found, begin)


def first_fault(
    sections: Sequence[tuple[KernelGroup, np.ndarray]], pool: Executor, threads: int, lanes: int = 1
) -> Fault | None:
    """A point of the sections (uint8, as a `.zkey` holds them) that is not reduced, off its curve or outside its
    subgroup, or None. A point outside goes unseen with probability at most 2^-64.
    """
    ranges = [each for i in range(len(sections)) for each in _ranges(i, sections, threads, lanes)]
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
    sums = np.concatenate(rows)
    return first_outside(group.kind.marker, _NOTHING, 0, 0, sums, len(rows), count, group.sums(1)) >= 0


def _width(n: int) -> int:
    """Coins to a round for ranges of n points, by the additions: one a point, c / 2 a bucket."""
    return min(range(2, 16), key=lambda c: -(-SUBSETS // c) * (n + (c << c - 1)))


@cache
def _folding(width: int) -> tuple[np.ndarray, np.ndarray]:
    """The items of `accumulate` that add to sum k every bucket whose number has bit k: targets and references."""
    buckets = np.arange(1 << width, dtype=np.int32)
    chosen = [buckets[buckets >> k & 1 == 1] for k in range(width)]
    return np.repeat(np.arange(width, dtype=np.int32), 1 << width - 1), 2 * np.concatenate(chosen)


def _ranges(section: int, sections: Sequence[tuple[KernelGroup, np.ndarray]], threads: int, lanes: int) -> list[_Range]:
    """A section cut into tasks; the width is the same for all sections of a group, since their sums are added."""
    group, points = sections[section]
    longest = max(len(other) for owner, other in sections if owner is group) // group.point_bytes
    step = min(_LARGE_RANGE, max(_SMALL_RANGE, -(-longest // threads)))
    width, n = _width(min(step, longest)), len(points) // group.point_bytes
    return [_Range(group, section, points, begin, min(begin + step, n), width, lanes) for begin in range(0, n, step)]


@kernel
def sift(F, points, begin, end, b, wanted, finite):
    """(-1, how many points in [begin, end) are not infinite), their indexes going into `finite` if `wanted`; or
    (the first that is not reduced or off y^2 = x^3 + b[0], 0).
    """
    n = 0
    for i in range(begin, end):
        if not valid_affine(F, points, i, b, 0):
            return i, 0
        if wanted and not (is_zero(F, points, 2 * i) and is_zero(F, points, 2 * i + 1)):
            finite[n] = i
            n += 1
    return -1, n
