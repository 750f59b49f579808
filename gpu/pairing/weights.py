"""Points times short random weights, by the endomorphism phi.

A weight is a + b lam with a and b of 64 bits: [a]P + [b]phi(P) costs 64 doublings and 48 mixed additions, since
P, phi(P) and P + phi(P) = -phi^2(P) are all affine at no cost (Gallant, Lambert, Vanstone, CRYPTO 2001; the joint
sparse form needs no precomputation here). All 2^128 weights are different mod r: a short vector of the lattice
{(a, b): a + b lam = 0 mod r} is longer than 2^64 (tests/gpu/test_batch.py computes it).
"""

from __future__ import annotations

import numpy as np

from gpu.curve.endomorphism import endomorphisms
from gpu.curve.group import KernelGroup
from gpu.curve.scalar import add_affine, double
from gpu.field.compiled import intrinsic, kernel
from gpu.field.lowering import operation
from gpu.field.operations import copy, is_zero, mul, neg, sub
from gpu.pairing.exponent import FP_INV


@intrinsic
def fp_inv(typingctx, field, d, i, a, j):
    return operation(FP_INV, field, d, i, a, j)


@kernel
def weigh(F, points, n, weights, beta, table, sums, prefix, out):
    """out[i] = [weights[2 i] + weights[2 i + 1] lam] points[i], affine in and out.

    Scratch: `table` three affine points, `sums` n XYZZ points, `prefix` n + 3 elements. `beta` is one element.
    """
    prefix_one = n + 1
    sub(F, prefix, 0, prefix, 0, prefix, 0)
    started = False
    for i in range(n):
        for k in range(3):
            copy(F, table, 2 * k, points, 2 * i)
            copy(F, table, 2 * k + 1, points, 2 * i + 1)
        mul(F, table, 2, table, 2, beta, 0)
        mul(F, table, 4, table, 2, beta, 0)
        neg(F, table, 5, table, 5)
        sub(F, sums, 4 * i + 2, sums, 4 * i + 2, sums, 4 * i + 2)
        for bit in range(63, -1, -1):
            double(F, sums, i)
            shift = np.uint64(bit)
            one = np.uint64(1)
            a, b = (weights[2 * i] >> shift) & one, (weights[2 * i + 1] >> shift) & one
            digit = np.int64(a + b + b)
            if digit:
                add_affine(F, sums, i, table, digit - 1, False)
        # prefix[i + 1] = the product of all ZZZ so far; infinity is left out.
        if is_zero(F, sums, 4 * i + 2):
            copy(F, prefix, i + 1, prefix, i)
        elif started:
            mul(F, prefix, i + 1, prefix, i, sums, 4 * i + 3)
        else:
            copy(F, prefix, i + 1, sums, 4 * i + 3)
            started = True
    if started:
        fp_inv(F, prefix, prefix_one, prefix, n)
    for i in range(n - 1, -1, -1):
        if is_zero(F, sums, 4 * i + 2):
            sub(F, out, 2 * i, out, 2 * i, out, 2 * i)
            sub(F, out, 2 * i + 1, out, 2 * i + 1, out, 2 * i + 1)
            continue
        if is_zero(F, prefix, i):  # the first finite point: what is left is its own inverse
            copy(F, prefix, n + 2, prefix, prefix_one)
        else:
            mul(F, prefix, n + 2, prefix, prefix_one, prefix, i)
        mul(F, prefix, prefix_one, prefix, prefix_one, sums, 4 * i + 3)
        mul(F, out, 2 * i + 1, sums, 4 * i + 1, prefix, n + 2)  # y = Y / ZZZ
        mul(F, prefix, n + 2, prefix, n + 2, sums, 4 * i + 2)  # ZZ / ZZZ, whose square is 1 / ZZ
        mul(F, prefix, n + 2, prefix, n + 2, prefix, n + 2)
        mul(F, out, 2 * i, sums, 4 * i, prefix, n + 2)


def weighted(group: KernelGroup, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Each affine point of G1 (uint64) times its weight (two words: a, b), affine.

    Points must be in the subgroup, where phi is a multiplication.
    """
    words, n = group.kind.words, weights.size // 2
    beta = group.element(endomorphisms(group.curve).beta)
    out = np.empty(2 * n * words, np.uint64)
    table, prefix = np.empty(6 * words, np.uint64), np.empty((n + 3) * words, np.uint64)
    weigh(group.kind.marker, points, n, weights, beta, table, group.sums(n), prefix, out)
    return out
