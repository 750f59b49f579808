"""The twiddles of a transform: for each stage a contiguous table, together less than one element for each value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu.field import arrays
from gpu.field.compiled import kernel
from gpu.field.kinds import LANES, KernelField
from gpu.field.moves import to_rows
from gpu.field.operations import mul

Progression = Callable[[int], tuple[int, int]]
"""From a stage's block size m to the first of its m/2 twiddles and the ratio of each to the one before."""


@kernel
def _fill_powers(F, out, n, base):
    """out[i] = out[0] * base[0]^i."""
    for i in range(1, n):
        mul(F, out, i, out, i - 1, base, 0)


@kernel
def _fill_rows(F, rows, first, x, n, lanes):
    """The elements of x as rows from `first` on."""
    for i in range(n):
        to_rows(F, rows, first + i * lanes, x, i, 1)


class Tables:
    """`rows`: the twiddles of the stages from size / lanes down to 2, as rows, the larger stage first: those of the
    stage on blocks of m begin at size / lanes - m. `blocks`: with eight lanes those of the first three stages, as
    blocks, in the same order.
    """

    def __init__(self, kind: KernelField, size: int, progression: Progression) -> None:
        self._kind = kind
        self._progression = progression
        n = size // kind.lanes
        self.rows = arrays.rows(kind, n + kind.lanes)  # a short stage is written as a whole block: room for the last
        m = n
        while m > 1:
            x = self._stage(m)
            _fill_rows(kind.marker, self.rows, n - m, x, len(x) // kind.words, kind.lanes)
            m >>= 1
        wide = [self._stage(size >> k) for k in range(3)] if kind.lanes == LANES else []
        self.blocks = arrays.aligned(sum(map(len, wide)))
        if wide:
            np.concatenate(wide, out=self.blocks)

    def _stage(self, m: int) -> np.ndarray:
        """The m/2 twiddles of one stage, in whole blocks."""
        kind, p = self._kind, self._kind.field.modulus
        first, ratio = self._progression(m)
        out = arrays.elements(kind, m >> 1)
        head = [first * pow(ratio, i, p) * kind.r % p for i in range(kind.lanes)]
        out[: kind.words] = arrays.encode(kind, head)
        _fill_powers(kind.marker, out, len(out) // kind.words, arrays.constant(kind, pow(ratio, kind.lanes, p)))
        return out
