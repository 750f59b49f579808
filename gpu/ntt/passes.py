"""The passes of a transform over an array of N elements, or of N blocks of eight whose lanes are independent.

Decimation in frequency takes natural order to bit-reversed order, decimation in time takes it back. A table holds,
for each stage on blocks of m from N down, its m/2 twiddles: `N - m` is where they begin. Kernels are given a range of
the work, so that threads share a pass.
"""

from __future__ import annotations

from gpu.field.compiled import intrinsic, kernel
from gpu.field.lowering import operation
from gpu.field.moves import join_words, split_words
from gpu.field.operations import mul, sub
from gpu.ntt import bodies


@intrinsic
def _dif4(typingctx, field, x, i, y, j, z, k, u, n, w, a, v, b, h, c):
    return operation(bodies.DIF4, field, x, i, y, j, z, k, u, n, w, a, v, b, h, c)


@intrinsic
def _dit4(typingctx, field, x, i, y, j, z, k, u, n, w, a, v, b, h, c):
    return operation(bodies.DIT4, field, x, i, y, j, z, k, u, n, w, a, v, b, h, c)


@intrinsic
def _dif4_blocks(typingctx, field, x, i, y, j, z, k, u, n, w, a, v, b, h, c):
    return operation(bodies.DIF4_BLOCKS, field, x, i, y, j, z, k, u, n, w, a, v, b, h, c)


@intrinsic
def _dit4_blocks(typingctx, field, x, i, y, j, z, k, u, n, w, a, v, b, h, c):
    return operation(bodies.DIT4_BLOCKS, field, x, i, y, j, z, k, u, n, w, a, v, b, h, c)


@intrinsic
def _dif4_last(typingctx, field, x, i, y, j, z, k, u, n, w, a):
    return operation(bodies.DIF4_LAST, field, x, i, y, j, z, k, u, n, w, a)


@intrinsic
def _dif2(typingctx, field, x, i, y, j, w, a):
    return operation(bodies.DIF2, field, x, i, y, j, w, a)


@intrinsic
def _dit2(typingctx, field, x, i, y, j, w, a):
    return operation(bodies.DIT2, field, x, i, y, j, w, a)


@intrinsic
def _dif2_blocks(typingctx, field, x, i, y, j, w, a):
    return operation(bodies.DIF2_BLOCKS, field, x, i, y, j, w, a)


@intrinsic
def _dit2_blocks(typingctx, field, x, i, y, j, w, a):
    return operation(bodies.DIT2_BLOCKS, field, x, i, y, j, w, a)


@intrinsic
def finish(typingctx, field, d, i, a, j, log_n):
    return operation(bodies.FINISH, field, d, i, a, j, log_n)


@intrinsic
def _transpose(typingctx, field, d, i, a, j):
    return operation(bodies.TRANSPOSE, field, d, i, a, j)


@kernel
def outer(F, begin, end, x, log_q, table, n, up):
    """Butterflies begin..end of the n/4 of the pass on blocks of 4q = 2^(log_q + 2): stages 4q and 2q, downwards
    (DIF), or 2q and 4q, upwards (DIT).
    """
    q = 1 << log_q
    whole, half = n - 4 * q, n - 2 * q
    for k in range(begin, end):
        i = k & (q - 1)
        j = ((k >> log_q) << (log_q + 2)) + i
        if up:
            _dit4(
                F, x, j, x, j + q, x, j + 2 * q, x, j + 3 * q, table, whole + i, table, whole + i + q, table, half + i
            )
        else:
            _dif4(
                F, x, j, x, j + q, x, j + 2 * q, x, j + 3 * q, table, whole + i, table, whole + i + q, table, half + i
            )


@kernel
def inner(F, begin, end, x, log_m, down, up, n):
    """Blocks begin..end of 2^log_m: all stages from there down and, with the other table, up again."""
    size = 1 << log_m
    for block in range(begin, end):
        base = block << log_m
        m = size
        if log_m & 1:
            m >>= 1
            for i in range(base, base + m):
                _dif2(F, x, i, x, i + m, down, n - size + i - base)
        while m > 4:
            q = m >> 2
            for start in range(base, base + size, m):
                for i in range(q):
                    j, w = start + i, n - m + i
                    _dif4(F, x, j, x, j + q, x, j + 2 * q, x, j + 3 * q, down, w, down, w + q, down, n - 2 * q + i)
            m = q
        if m == 4:
            for j in range(base, base + size, 4):
                _dif4_last(F, x, j, x, j + 1, x, j + 2, x, j + 3, down, n - 3)
            while m <= size:
                q = m >> 2
                for start in range(base, base + size, m):
                    for i in range(q):
                        j, w = start + i, n - m + i
                        _dit4(F, x, j, x, j + q, x, j + 2 * q, x, j + 3 * q, up, w, up, w + q, up, n - 2 * q + i)
                m <<= 2
        if log_m & 1:
            m = size >> 1
            for i in range(base, base + m):
                _dit2(F, x, i, x, i + m, up, n - size + i - base)


@kernel
def finish_all(F, begin, end, x, log_n):
    """x[i] /= 2^log_n, for begin <= i < end."""
    for i in range(begin, end):
        finish(F, x, i, x, i, log_n)


@kernel
def open_lanes(F, begin, end, x, words, n, table, s):
    """Eight lanes only. Words to blocks, with the first three DIF stages of a transform of n elements, after which
    lane l holds the l-th eighth of them; k of begin..end makes blocks 8k..8k+7. `table`: the twiddles of these stages,
    as blocks; `s`: room for eight blocks.
    """
    step = n >> 6
    for k in range(begin, end):
        for j in range(8):
            split_words(F, s, j, words, 8 * (j * step + k), 1)
        for j in range(2):
            a = j * step + k
            _dif4_blocks(F, s, j, s, j + 2, s, j + 4, s, j + 6, table, a, table, a + 2 * step, table, a + 4 * step)
        for j in range(0, 8, 2):
            _dif2_blocks(F, s, j, s, j + 1, table, 6 * step + k)
        _transpose(F, x, 8 * k, s, 0)


@kernel
def close_lanes(F, begin, end, words, x, n, log_n, table, s):
    """The reverse of `open_lanes`, with the last three DIT stages, and divided by n."""
    step = n >> 6
    for k in range(begin, end):
        _transpose(F, s, 0, x, 8 * k)
        for j in range(0, 8, 2):
            _dit2_blocks(F, s, j, s, j + 1, table, 6 * step + k)
        for j in range(2):
            a = j * step + k
            _dit4_blocks(F, s, j, s, j + 2, s, j + 4, s, j + 6, table, a, table, a + 2 * step, table, a + 4 * step)
        for j in range(8):
            finish(F, s, j, s, j, log_n)
            join_words(F, words, 8 * (j * step + k), s, j, 1)


@kernel
def multiply(F, begin, end, c, a, b, lanes, s):
    """c[i] = a[i] * b[i] as words, up to the power of two that `quotient` expects, for `lanes` elements a step. `s`:
    room for two elements or blocks.
    """
    for k in range(begin, end):
        i = k * lanes
        split_words(F, s, 0, a, i, 1)
        split_words(F, s, 1, b, i, 1)
        mul(F, s, 0, s, 0, s, 1)
        join_words(F, c, i, s, 0, 1)


@kernel
def quotient(F, begin, end, a, b, c, factor, lanes, s):
    """a[i] = (a[i] * b[i] - c[i]) * factor[0] as words, likewise."""
    for k in range(begin, end):
        i = k * lanes
        split_words(F, s, 0, a, i, 1)
        split_words(F, s, 1, b, i, 1)
        mul(F, s, 0, s, 0, s, 1)
        split_words(F, s, 1, c, i, 1)
        sub(F, s, 0, s, 0, s, 1)
        mul(F, s, 0, s, 0, factor, 0)
        join_words(F, a, i, s, 0, 1)
