"""The end of a multi-scalar multiplication, and the whole of a very small one: points at bit positions, added up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu.curve.group import KernelGroup
from gpu.curve.reference import Point
from gpu.curve.scalar import add_affine, double
from gpu.field.compiled import kernel


@kernel
def _horner(F, points, starts, refs, n_bits, out):
    """out[0] = the sum over bits of 2^bit * (points[refs[k]] for k in [starts[bit], starts[bit + 1])).

    `out` is one XYZZ point, at infinity.
    """
    for bit in range(n_bits - 1, -1, -1):
        double(F, out, 0)
        for k in range(starts[bit], starts[bit + 1]):
            add_affine(F, out, 0, points, refs[k], False)


def sum_of_bits(group: KernelGroup, points: np.ndarray, at_bits: Sequence[Sequence[int]]) -> Point:
    """The sum over bits b of 2^b times the points whose indexes at_bits[b] names. `points` in `.zkey` form."""
    starts = np.cumsum([0, *(len(chosen) for chosen in at_bits)], dtype=np.int64)
    refs = np.array([i for chosen in at_bits for i in chosen], np.int64)
    out = group.sums(1)
    view = points.view(np.uint8)
    view.flags.writeable = False
    _horner(group.kind.marker, view, starts, refs, len(at_bits), out)
    return group.to_affine(out)
