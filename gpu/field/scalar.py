"""Field operations inside kernels: the scalar back end, for any CPU that LLVM knows.

An operation names its field by a marker (`kernel_field(BN254_P).marker`, a tuple whose length says which
field: a type to numba, so one kernel source compiles for every field), and its operands as (array, index of
an element in it). Elements are `words` 64-bit words in Montgomery form. Arrays may be uint64, or uint8 views
of a mapped file, which need not be aligned.

    mul(F, d, i, a, j, b, k)    d[i] = a[j] * b[k]        likewise add, sub
    sqr(F, d, i, a, j)          d[i] = a[j]^2             likewise neg, copy
    is_zero(F, a, j) -> bool    equal(F, a, j, b, k) -> bool    reduced(F, a, j) -> bool
"""

from __future__ import annotations

from gpu.field.bodies import OPERATIONS
from gpu.field.compiled import intrinsic
from gpu.field.lowering import operation


@intrinsic
def mul(typingctx, field, d, i, a, j, b, k):
    return operation(OPERATIONS["mul"], field, d, i, a, j, b, k)


@intrinsic
def add(typingctx, field, d, i, a, j, b, k):
    return operation(OPERATIONS["add"], field, d, i, a, j, b, k)


@intrinsic
def sub(typingctx, field, d, i, a, j, b, k):
    return operation(OPERATIONS["sub"], field, d, i, a, j, b, k)


@intrinsic
def sqr(typingctx, field, d, i, a, j):
    return operation(OPERATIONS["sqr"], field, d, i, a, j)


@intrinsic
def neg(typingctx, field, d, i, a, j):
    return operation(OPERATIONS["neg"], field, d, i, a, j)


@intrinsic
def copy(typingctx, field, d, i, a, j):
    return operation(OPERATIONS["copy"], field, d, i, a, j)


@intrinsic
def is_zero(typingctx, field, a, j):
    return operation(OPERATIONS["is_zero"], field, a, j)


@intrinsic
def equal(typingctx, field, a, j, b, k):
    return operation(OPERATIONS["equal"], field, a, j, b, k)


@intrinsic
def reduced(typingctx, field, a, j):
    return operation(OPERATIONS["reduced"], field, a, j)
