"""Kernels of the pairing. `F` is the marker of Fp2; layouts are those of `tower` and `lines`."""

from __future__ import annotations

from gpu.field.compiled import intrinsic, kernel
from gpu.field.lowering import operation
from gpu.field.operations import copy, is_zero
from gpu.pairing.exponent import FINAL
from gpu.pairing.lines import ADD, DOUBLE, FINISH, TAIL
from gpu.pairing.tower import TOWER


@intrinsic
def line_double(typingctx, field, f, i, t, j, p, k):
    return operation(DOUBLE, field, f, i, t, j, p, k)


@intrinsic
def line_add(typingctx, field, f, i, t, j, q, k, p, n, negate):
    return operation(ADD, field, f, i, t, j, q, k, p, n, negate)


@intrinsic
def miller_tail(typingctx, field, f, i, t, j, q, k, p, n):
    return operation(TAIL, field, f, i, t, j, q, k, p, n)


@intrinsic
def miller_finish(typingctx, field, f, i):
    return operation(FINISH, field, f, i)


@intrinsic
def twelve_mul(typingctx, field, d, i, a, j, b, k):
    return operation(TOWER["twelve_mul"], field, d, i, a, j, b, k)


@intrinsic
def twelve_sqr(typingctx, field, d, i, a, j):
    return operation(TOWER["twelve_sqr"], field, d, i, a, j)


@intrinsic
def final_exponentiation(typingctx, field, f, i):
    return operation(FINAL, field, f, i)


@kernel
def pairing_product(F, p, q, begin, end, loop, sums, values, count, exponentiate, f):
    """f[0] = the product over [begin, end) of the Miller loops of (P_i, Q_i), which share their squarings, times
    values[:count]; then its final exponentiation when `exponentiate`. All in one kernel, since each carries
    its own compiled copy of the tower.

    `p`: affine G1 points, one Fp2 element each; `q`: affine G2 points; a pair with infinity (all zero) counts
    as one. `loop`: signed digits, highest first, the leading one left out. `sums`: 3 (end - begin) elements of
    Fp2 as scratch. `values`: elements of Fp12. f[0] must be one.
    """
    for i in range(begin, end):
        at = 3 * (i - begin)
        copy(F, sums, at, q, 2 * i)
        copy(F, sums, at + 1, q, 2 * i + 1)
        copy(F, sums, at + 2, f, 0)
    for step in range(len(loop) + 1 if begin < end else 0):
        if step < len(loop):
            twelve_sqr(F, f, 0, f, 0)
        for i in range(begin, end):
            if is_zero(F, p, i) or (is_zero(F, q, 2 * i) and is_zero(F, q, 2 * i + 1)):
                continue
            if step == len(loop):
                miller_tail(F, f, 0, sums, i - begin, q, i, p, i)
                continue
            line_double(F, f, 0, sums, i - begin, p, i)
            if loop[step] != 0:
                line_add(F, f, 0, sums, i - begin, q, i, p, i, loop[step] < 0)
    miller_finish(F, f, 0)
    for i in range(count):
        twelve_mul(F, f, 0, f, 0, values, i)
    if exponentiate:
        final_exponentiation(F, f, 0)
