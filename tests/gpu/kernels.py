"""Kernels that call single operations, so that tests can compare them with the Python-int oracle."""

from __future__ import annotations

from gpu.curve.scalar import add_affine, add_sum, double
from gpu.field.compiled import kernel


@kernel
def every_sum(F, n, points, pairs, negate, affine_sums, full_sums, doubles):
    """Sums start at infinity. affine_sums[i] = P +- Q by mixed additions; full_sums[i] = 2P +- Q by full
    ones.
    """
    for i in range(n):
        add_affine(F, affine_sums, i, points, pairs[i, 0], False)
        add_affine(F, affine_sums, i, points, pairs[i, 1], negate[i])
        add_affine(F, doubles, i, points, pairs[i, 0], False)
        double(F, doubles, i)
        add_affine(F, full_sums, i, points, pairs[i, 1], negate[i])
        add_sum(F, full_sums, i, doubles, i)
