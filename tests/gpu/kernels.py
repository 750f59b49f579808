"""Kernels that call single operations, so that tests can compare them with the Python-int oracle."""

from __future__ import annotations

from gpu.curve.scalar import add_affine, add_sum, double
from gpu.field.compiled import kernel
from gpu.field.scalar import add, copy, equal, is_zero, mul, neg, reduced, sqr, sub

N_RESULTS = 6


@kernel
def every_operation(F, n, a, b, out, flags):
    for i in range(n):
        mul(F, out, 6 * i, a, i, b, i)
        sqr(F, out, 6 * i + 1, a, i)
        add(F, out, 6 * i + 2, a, i, b, i)
        sub(F, out, 6 * i + 3, a, i, b, i)
        neg(F, out, 6 * i + 4, a, i)
        copy(F, out, 6 * i + 5, a, i)
        flags[3 * i] = is_zero(F, a, i)
        flags[3 * i + 1] = equal(F, a, i, b, i)
        flags[3 * i + 2] = reduced(F, a, i)


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
