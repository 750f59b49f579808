"""The transforms in place, without bit reversal: decimation in frequency takes natural order to bit-reversed
order, decimation in time takes bit-reversed order back to natural order.

Elements are in Montgomery form unless said otherwise.
"""

from __future__ import annotations

from gpu.field.compiled import intrinsic, kernel
from gpu.field.lowering import operation
from gpu.field.scalar import copy, mul, sub
from gpu.ntt.bodies import DIF, DIT


@intrinsic
def _butterfly_dif(typingctx, field, x, i, y, j, w, k):
    return operation(DIF, field, x, i, y, j, w, k)


@intrinsic
def _butterfly_dit(typingctx, field, x, i, y, j, w, k):
    return operation(DIT, field, x, i, y, j, w, k)


@kernel
def to_coset(F, x, down, factors, up, n):
    """A transform, a factor for each coefficient, and a transform back: values on one coset become values
    on another.

    `down` and `up` hold the powers 0..n/2-1 of the roots of the two transforms; `factors` is in bit-reversed
    order.
    """
    half, stride = n >> 1, 1
    while half:
        for block in range(0, n, 2 * half):
            for i in range(half):
                _butterfly_dif(F, x, block + i, x, block + i + half, down, i * stride)
        half >>= 1
        stride <<= 1
    for i in range(n):
        mul(F, x, i, x, i, factors, i)
    half, stride = 1, n >> 1
    while half < n:
        for block in range(0, n, 2 * half):
            for i in range(half):
                _butterfly_dit(F, x, block + i, x, block + i + half, up, i * stride)
        half <<= 1
        stride >>= 1


@kernel
def fill_powers(F, out, n, base):
    """out[i] = out[0] * base[0]^i."""
    for i in range(1, n):
        mul(F, out, i, out, i - 1, base, 0)


@kernel
def reorder(F, out, x, log_n):
    """out[bit_reverse(i)] = x[i]."""
    for i in range(1 << log_n):
        j, k = 0, i
        for _ in range(log_n):
            j = (j << 1) | (k & 1)
            k >>= 1
        copy(F, out, j, x, i)


@kernel
def multiply(F, out, a, b, n):
    """out[i] = a[i] * b[i]."""
    for i in range(n):
        mul(F, out, i, a, i, b, i)


@kernel
def quotient_values(F, a, b, c, plain_one, n):
    """a[i] = a[i] * b[i] - c[i], out of Montgomery form. `plain_one` is one, not in Montgomery form."""
    for i in range(n):
        mul(F, a, i, a, i, b, i)
        sub(F, a, i, a, i, c, i)
        mul(F, a, i, a, i, plain_one, 0)
