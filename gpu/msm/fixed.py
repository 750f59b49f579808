"""Many multiples of one point, as key generation needs them: a table of its multiples by windows of the
scalar.

Brickell, Gordon, McCurley, Wilson, "Fast exponentiation with precomputation" (EUROCRYPT 1992): with windows
of 8 bits a multiple costs at most 32 mixed additions. Sums become affine by batch inversion (Montgomery's
trick), one inversion a chunk.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import numpy as np

from gpu.curve.group import KernelGroup
from gpu.curve.reference import Point
from gpu.curve.scalar import add_affine, add_sum, double
from gpu.field.compiled import kernel
from gpu.field.scalar import copy, is_zero, mul, sqr

_WINDOW = 8
_N_WINDOWS = 32
_ENTRIES = (1 << _WINDOW) - 1  # a zero digit adds nothing and needs no entry
_CHUNK = 4096


@kernel
def _fill_table(F, point, sums, base):
    """sums[w * 255 + j - 1] = j * 2^(8 w) * point[0]. `base` is one XYZZ point at infinity."""
    add_affine(F, base, 0, point, 0, False)
    for w in range(_N_WINDOWS):
        first = w * _ENTRIES
        for j in range(_ENTRIES):
            if j:
                add_sum(F, sums, first + j, sums, first + j - 1)
            add_sum(F, sums, first + j, base, 0)
        for _ in range(_WINDOW):
            double(F, base, 0)


@kernel
def _multiples(F, table, scalars, n, sums):
    """sums[i] += scalars[i] * point, `scalars` as 32 bytes each, `table` the affine multiples."""
    for i in range(n):
        for w in range(_N_WINDOWS):
            digit = np.int64(scalars[32 * i + w])
            if digit:
                add_affine(F, sums, i, table, w * _ENTRIES + digit - 1, False)


@kernel
def _prefix_products(F, sums, n, prefix):
    """prefix[i + 1] = prefix[0] * the ZZZ of the finite points among sums[0..i]."""
    for i in range(n):
        if is_zero(F, sums, 4 * i + 2):
            copy(F, prefix, i + 1, prefix, i)
        else:
            mul(F, prefix, i + 1, prefix, i, sums, 4 * i + 3)


@kernel
def _normalise(F, sums, n, prefix, inverse, out, t):
    """out[i] = sums[i] in affine form, given `inverse` of the last prefix product, which is used up."""
    for i in range(n - 1, -1, -1):
        if is_zero(F, sums, 4 * i + 2):
            continue  # `out` starts as zeros, which is infinity
        mul(F, t, 0, prefix, i, inverse, 0)  # 1/ZZZ
        mul(F, inverse, 0, inverse, 0, sums, 4 * i + 3)
        mul(F, out, 2 * i + 1, sums, 4 * i + 1, t, 0)
        mul(F, t, 0, t, 0, sums, 4 * i + 2)
        sqr(F, t, 0, t, 0)  # (ZZ/ZZZ)^2 = 1/ZZ
        mul(F, out, 2 * i, sums, 4 * i, t, 0)


class FixedBase:
    """The table of one point, and multiples made with it."""

    def __init__(self, group: KernelGroup, point: Point) -> None:
        self.group = group
        sums = group.sums(_N_WINDOWS * _ENTRIES)
        _fill_table(group.kind.marker, group.encode([point]), sums, group.sums(1))
        self._table = to_affine(group, sums)

    def multiples(self, scalars: np.ndarray, pool: Executor) -> bytes:
        """[scalar]point for each scalar (plain, n rows of four uint64 words), as a `.zkey` section holds points."""
        parts = [pool.submit(self._chunk, scalars[i : i + _CHUNK]) for i in range(0, len(scalars), _CHUNK)]
        return b"".join(part.result() for part in parts)

    def _chunk(self, scalars: np.ndarray) -> bytes:
        sums = self.group.sums(len(scalars))
        _multiples(
            self.group.kind.marker,
            self._table,
            np.ascontiguousarray(scalars).reshape(-1).view(np.uint8),
            len(scalars),
            sums,
        )
        return to_affine(self.group, sums).tobytes()


def to_affine(group: KernelGroup, sums: np.ndarray) -> np.ndarray:
    """XYZZ points as affine ones in `.zkey` form (uint8)."""
    words, marker = group.kind.words, group.kind.marker
    n = len(sums) // (4 * words)
    prefix, out = np.zeros((n + 1) * words, np.uint64), np.zeros(2 * n * words, np.uint64)
    prefix[:words] = group.element(group.reference.field.one)
    _prefix_products(marker, sums, n, prefix)
    total: Any = group.value(prefix[n * words :])
    inverse = group.element(group.reference.field.inv(total))
    _normalise(marker, sums, n, prefix, inverse, out, np.zeros(words, np.uint64))
    return out.view(np.uint8)
