"""Field operations inside kernels, on one element at a time (any CPU that LLVM knows) or on blocks of eight
(AVX-512 IFMA).

An operation names its field by a marker (`kernel_field(BN254_P).marker`, a tuple whose length says which
field: a type to numba, so one kernel source compiles for every field), and its operands as (array, index of
an element in it). An element, or with an 8-lane marker a block of eight, has `KernelField.words` 64-bit words, in
Montgomery form. Arrays may be uint64, or uint8 views; elements need not be aligned, blocks should start at 64 bytes.
A mask is a bool with one lane, and an int64 with one bit a lane with eight. `reduced` asks of canonical words, whatever
the lanes.

    mul(F, d, i, a, j, b, k)    d[i] = a[j] * b[k]        likewise add, sub
    sqr(F, d, i, a, j)          d[i] = a[j]^2             likewise neg, copy, canonical (reduced)
    select(F, d, i, a, j, b, k, mask)   d[i] = a[j] where the mask is set, else b[k]
    is_zero(F, a, j) -> mask    equal(F, a, j, b, k) -> mask    reduced(F, words, j) -> bool
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
def canonical(typingctx, field, d, i, a, j):
    return operation(OPERATIONS["canonical"], field, d, i, a, j)


@intrinsic
def select(typingctx, field, d, i, a, j, b, k, mask):
    return operation(OPERATIONS["select"], field, d, i, a, j, b, k, mask)


@intrinsic
def is_zero(typingctx, field, a, j):
    return operation(OPERATIONS["is_zero"], field, a, j)


@intrinsic
def equal(typingctx, field, a, j, b, k):
    return operation(OPERATIONS["equal"], field, a, j, b, k)


@intrinsic
def reduced(typingctx, field, a, j):
    return operation(OPERATIONS["reduced"], field, a, j)
