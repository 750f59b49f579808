"""Many multiples of one point, as key generation needs them: a table of its multiples by windows of the scalar.

Brickell, Gordon, McCurley, Wilson, "Fast exponentiation with precomputation" (EUROCRYPT 1992), with signed digits: a
multiple is a sum of one table entry for each window, and all sums of a chunk share their inversions.
"""

from __future__ import annotations

from concurrent.futures import Executor

import numpy as np

from gpu.curve.group import KernelGroup
from gpu.curve.reference import Point
from gpu.field.compiled import kernel
from gpu.msm.batch import Room

_CHUNK = 1 << 13  # scalars to a task
_TABLE_BYTES = 1 << 25
_MAX_WINDOW = 16


@kernel
def _digits(scalars, c, n_windows, targets, refs):
    """The items of `accumulate` for rows of four words: target i, and of window w the entry |digit| - 1.

    Returns their number. |digit| <= 2^(c-1); the windows must reach one bit beyond the longest scalar.
    """
    half = 1 << (c - 1)
    n = 0
    for i in range(len(scalars)):
        carry = 0
        for w in range(n_windows):
            word, shift = w * c >> 6, w * c & 63
            raw = np.uint64(0)
            if word < 4:
                raw = scalars[i, word] >> np.uint64(shift)
                if word < 3 and shift + c > 64:
                    raw |= scalars[i, word + 1] << np.uint64(64 - shift)
            digit = (np.int64(raw) & (2 * half - 1)) + carry
            carry = 1 if digit > half else 0
            digit -= 2 * half * carry
            if digit:
                targets[n] = i
                refs[n] = 2 * (w * half + abs(digit) - 1) + (digit < 0)
                n += 1
    return n


class FixedBase:
    """The table of one point for scalars below the group's order, and multiples made with it.

    `count`: about how many multiples will be asked for; it decides the size of the table. `lanes`: 1 or 8, the
    kernels' width.
    """

    def __init__(self, group: KernelGroup, point: Point, count: int = 1 << 17, lanes: int = 1) -> None:
        bits = group.curve.r.bit_length() + 1  # the top digit may grow by a carry
        widest = max(2, (_TABLE_BYTES // group.point_bytes).bit_length() - 5)
        windows = range(2, min(widest, _MAX_WINDOW) + 1)
        self._c = min(windows, key=lambda c: -(-bits // c) * (count + (1 << (c - 1))))
        self._n_windows = -(-bits // self._c)
        self._half = 1 << (self._c - 1)
        self._group = group
        bases, base = [], point
        for _ in range(self._n_windows):
            bases.append(base)
            for _ in range(self._c):
                base = group.reference.add(base, base)
        self._table = np.zeros(self._n_windows * self._half * group.point_bytes, np.uint8)
        self._lanes = lanes
        room = Room(group, lanes)
        for row, base in zip(self._table.reshape(self._n_windows, -1), bases, strict=True):
            self._fill(room, row, base)

    def _fill(self, room: Room, row: np.ndarray, base: Point) -> None:
        """row[j - 1] = j * base: m multiples make the next m."""
        row[: self._group.point_bytes] = self._group.encode([base])
        m = 1
        while m < self._half:
            targets = np.repeat(np.arange(m, 2 * m, dtype=np.int32), 2)
            refs = np.full(2 * m, 2 * (m - 1), np.int32)
            refs[::2] = np.arange(0, 2 * m, 2)
            room.accumulate(row.view(np.uint64), row, targets, refs, 2 * m)
            m *= 2

    def multiples(self, scalars: np.ndarray, pool: Executor) -> np.ndarray:
        """[scalar]point for each row of `scalars`, shape (n, 4), uint64, plain: n points in `.zkey` form (uint8)."""
        out = np.zeros(len(scalars) * self._group.point_bytes, np.uint8)
        each = _CHUNK * self._group.point_bytes
        parts = [
            pool.submit(self._chunk, scalars[i : i + _CHUNK], out[k * each : (k + 1) * each])
            for k, i in enumerate(range(0, len(scalars), _CHUNK))
        ]
        for part in parts:
            part.result()
        return out

    def _chunk(self, scalars: np.ndarray, out: np.ndarray) -> None:
        targets, refs = (np.empty(len(scalars) * self._n_windows, np.int32) for _ in range(2))
        n = _digits(np.ascontiguousarray(scalars), self._c, self._n_windows, targets, refs)
        Room(self._group, self._lanes).accumulate(out.view(np.uint64), self._table, targets, refs, n)
