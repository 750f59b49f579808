"""Pippenger's bucket method with signed digits, one window of one range of points to a call.

Bernstein, Doumen, Lange, Oosterwijk, "Faster batch forgery identification" (INDOCRYPT 2012), section 4. A
digit d in [-2^(c-1), 2^(c-1)) adds the point, or its negative, to bucket |d|; the window's sum is the sum of
b * bucket[b].
"""

from __future__ import annotations

import numpy as np

from gpu.curve.scalar import add_affine, add_sum
from gpu.field.compiled import kernel


@kernel
def signed_digits(scalars, begin, end, c, n_windows, out):
    """Digits of scalars[begin:end] (four uint64 words each, plain) into out[window, i]. |digit| <=
    2^(c-1).
    """
    mask = np.uint64((1 << c) - 1)
    half = 1 << (c - 1)
    for i in range(begin, end):
        carry = 0
        for w in range(n_windows):
            bit = w * c
            word = bit >> 6
            shift = np.uint64(bit & 63)
            raw = np.uint64(0)
            if word < 4:
                raw = scalars[4 * i + word] >> shift
                if word < 3 and (bit & 63) + c > 64:
                    raw |= scalars[4 * i + word + 1] << (np.uint64(64) - shift)
            digit = np.int64(raw & mask) + carry
            carry = 0
            if digit >= half:
                digit -= 1 << c
                carry = 1
            out[w, i] = digit


@kernel
def accumulate(F, points, digits, begin, end, buckets):
    """Adds every point of [begin, end) into bucket |digit| - 1. `digits` is one window's row."""
    for i in range(begin, end):
        digit = np.int64(digits[i])
        if digit > 0:
            add_affine(F, buckets, digit - 1, points, i, False)
        elif digit < 0:
            add_affine(F, buckets, -digit - 1, points, i, True)


@kernel
def weighted_sum(F, buckets, n_buckets, out):
    """out[0] = sum of (b + 1) * buckets[b], by running sums kept in out[1]. `out` starts at infinity."""
    for b in range(n_buckets - 1, -1, -1):
        add_sum(F, out, 1, buckets, b)
        add_sum(F, out, 0, out, 1)
