"""Moves of elements inside kernels, for one lane and for eight. Operands are (array, index) pairs as in `operations`.

Three forms: canonical elements of 64-bit words `w` (reduced, Montgomery with R = 2^(64 limbs), any alignment), rows
(`KernelField.row_words` words each) and what the arithmetic works on: elements, or blocks of W = 8. The index of a word
or row operand counts elements, and `stride` is how many elements lie between two lanes: 1 for an array of elements,
2 for the x of affine points. A reference (uint32) is a row's index times two, plus one where its negative is meant;
rows[c + stride * index] is the element meant, so c chooses the coordinate.

from_words(F, d, i, w, j, stride)            d[i] = w[j], w[j + stride], ...; split_words the same bits, R unchanged
to_words(F, w, j, a, i, stride)              the reverse, reduced; join_words the same bits, R unchanged
to_rows(F, rows, j, a, i, stride)            rows[j], rows[j + stride], ... = a[i]
gather_signed(F, d, i, rows, c, refs, k, stride)
                                             d[i] = what refs[k .. k + W) mean
prefetch_one(F, a, j)                        asks for an element's
"""

from __future__ import annotations

from gpu.field import transfer
from gpu.field.compiled import intrinsic
from gpu.field.lowering import operation


@intrinsic
def from_words(typingctx, field, d, i, w, j, stride):
    return operation(transfer.FROM_WORDS, field, d, i, w, j, stride)


@intrinsic
def split_words(typingctx, field, d, i, w, j, stride):
    return operation(transfer.SPLIT_WORDS, field, d, i, w, j, stride)


@intrinsic
def to_words(typingctx, field, w, j, a, i, stride):
    return operation(transfer.TO_WORDS, field, w, j, a, i, stride)


@intrinsic
def join_words(typingctx, field, w, j, a, i, stride):
    return operation(transfer.JOIN_WORDS, field, w, j, a, i, stride)


@intrinsic
def to_rows(typingctx, field, rows, j, a, i, stride):
    return operation(transfer.TO_ROWS, field, rows, j, a, i, stride)


@intrinsic
def gather_signed(typingctx, field, d, i, rows, c, refs, k, stride):
    return operation(transfer.GATHER_SIGNED, field, d, i, rows, c, refs, k, stride)


@intrinsic
def prefetch_one(typingctx, field, a, j):
    return operation(transfer.PREFETCH_ONE, field, a, j)
