"""Sums of affine points in batches: the one kernel that all multi-scalar multiplication is made of.

An affine addition costs five products and a square where many share one inversion (Montgomery, "Speeding the Pollard
and elliptic curve methods of factorization", Math. Comp. 1987): half of what the best formulas without inversions do.
Points of one target are added in pairs, round after round, so that a target of any size is a tree and never a chain.
"""

from __future__ import annotations

import numpy as np

from gpu.curve.affine import close_pair, copy_point, invert_all, numerator, open_pair, prefetch
from gpu.curve.group import KernelGroup
from gpu.field.arrays import aligned
from gpu.field.compiled import kernel
from gpu.field.kinds import kernel_field
from gpu.field.operations import copy, mul
from gpu.msm.inverse import address, constants

_POINT_BYTES = 1 << 18  # of the points that one batch starts with
_AHEAD = 12  # pairs (or blocks of eight) between asking for a point and reading it


@kernel
def accumulate(F, lanes, slots, points, targets, refs, n, blocks, scratch, queue, known, invert):
    """slots[targets[i]] += points[refs[i] >> 1], or -= where refs[i] is odd, for every i < n.

    `slots` (uint64) and `points` (read-only uint8) hold affine points in `.zkey` form. Equal targets must be
    neighbours; no target may be read as a point. `F` is the marker of a field of `lanes` lanes; what follows n is
    what `Room` holds. One function, because every function that is called is compiled again into its caller.
    """
    room = len(queue) // 7
    owners, left, right, out, special, place = room, 2 * room, 3 * room, 4 * room, 5 * room, 6 * room
    prefix = room // 2 // lanes
    t = 2 * prefix
    point_words = len(scratch) // (room + 2)
    point_bytes = 8 * point_words
    from_points = np.int64(points.ctypes.data)
    from_slots = np.int64(slots.ctypes.data)
    from_scratch = np.int64(scratch.ctypes.data)
    nowhere = from_scratch + room * point_bytes
    at = 0
    while at < n:
        # The next items, and before an owner's first one what its slot already holds.
        m = 0
        owner = np.int64(-1)
        while at < n and m + 2 <= room:
            if targets[at] != owner:
                owner = np.int64(targets[at])
                for word in range(owner * point_words, (owner + 1) * point_words):
                    if slots[word]:
                        queue[m] = 2 * (from_slots + owner * point_bytes)
                        queue[owners + m] = owner
                        m += 1
                        break
            ref = np.int64(refs[at])
            queue[m] = 2 * (from_points + (ref >> 1) * point_bytes) + (ref & 1)
            queue[owners + m] = owner
            m += 1
            at += 1
        used = 0
        while m:
            # Pairs of neighbours with one owner. An item that is alone is copied into its owner's slot, a pair that
            # is alone will be added right into it; these leave.
            pairs, kept, i = 0, 0, 0
            while i < m:
                owner = queue[owners + i]
                slot = 2 * (from_slots + owner * point_bytes)
                first = kept == 0 or queue[owners + kept - 1] != owner
                if i + 1 < m and queue[owners + i + 1] == owner:
                    queue[left + pairs], queue[right + pairs] = queue[i], queue[i + 1]
                    i += 2
                    if not first or (i < m and queue[owners + i] == owner):
                        slot = 2 * (from_scratch + used * point_bytes)
                        queue[kept], queue[owners + kept] = slot, owner
                        used += 1
                        kept += 1
                    queue[out + pairs] = slot
                    pairs += 1
                else:
                    if first:
                        queue[place] = slot
                        copy_point(F, queue, place, queue, i)
                    else:
                        queue[kept], queue[owners + kept] = queue[i], owner
                        kept += 1
                    i += 1
            m = kept
            count = (pairs + lanes - 1) // lanes
            for i in range(pairs, count * lanes):
                # Lanes without a pair: infinity twice, the sum to where nobody looks.
                queue[left + i] = queue[right + i] = 2 * nowhere
                queue[out + i] = 2 * (nowhere + point_bytes)
            for k in range(count):
                for ahead in range((k + _AHEAD) * lanes, min((k + _AHEAD + 1) * lanes, pairs)):
                    prefetch(F, queue[left + ahead])
                    prefetch(F, queue[right + ahead])
                i = k * lanes
                open_pair(F, blocks, k, queue, left + i, queue, right + i, queue, special + k)
                if k:
                    mul(F, blocks, prefix + k, blocks, prefix + k - 1, blocks, k)
                else:
                    copy(F, blocks, prefix, blocks, 0)
            if count:
                invert_all(F, blocks, t + 1, blocks, prefix + count - 1, known, 0, invert)
            for k in range(count - 1, -1, -1):
                if k:
                    mul(F, blocks, t, blocks, t + 1, blocks, prefix + k - 1)
                    mul(F, blocks, t + 1, blocks, t + 1, blocks, k)
                else:
                    copy(F, blocks, t, blocks, t + 1)
                i = k * lanes
                close_pair(F, blocks, t, queue, left + i, queue, right + i, queue, special + k, queue, out + i)


class Room:
    """What one thread needs to call `accumulate`: the field's marker, constants and working memory."""

    def __init__(self, group: KernelGroup, lanes: int, capacity: int = 0) -> None:
        kind = group.kind
        wide = kernel_field(kind.field, kind.degree, lanes)
        # Whole blocks of pairs.
        capacity = max(16, (capacity or _POINT_BYTES // group.point_bytes) // 16 * 16)
        self._field = wide.marker, lanes
        self._blocks = aligned((2 * (capacity // 2 // lanes) + 2) * wide.words)
        self._scratch = aligned((capacity + 2) * 2 * kind.words)
        self._queue = np.empty(7 * capacity, np.int64)
        self._known = constants(kind.field, numerator(wide))

    def accumulate(self, slots: np.ndarray, points: np.ndarray, targets: np.ndarray, refs: np.ndarray, n: int) -> None:
        """As the kernel of this name; `points` as bytes or words, `targets` and `refs` int32."""
        points = points.view(np.uint8)
        points.flags.writeable = False  # one type of argument, so one compilation
        room = self._blocks, self._scratch, self._queue, self._known, address()
        accumulate(*self._field, slots, points, targets, refs, n, *room)
