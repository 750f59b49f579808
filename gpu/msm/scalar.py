"""Pippenger's bucket method with signed digits, one window of one range of points to a call.

Bernstein, Doumen, Lange, Oosterwijk, "Faster batch forgery identification" (INDOCRYPT 2012), section 4. A
digit d in [-2^(c-1), 2^(c-1)] adds the point, or its negative, to bucket |d|; the window's sum is the sum of
b * bucket[b]. Kernels are few and do much each: every one carries its own compiled copy of the group law.
"""

from __future__ import annotations

import numpy as np

from gpu.curve.scalar import add_affine, add_sum, double
from gpu.field.compiled import kernel


@kernel
def signed_digits(scalars, n, c, n_windows, out):
    """Digits of n scalars (four uint64 words each, plain) into out[window, i]: |digit| <= 2^(c-1).

    The windows must reach one bit beyond the longest scalar.
    """
    mask = np.uint64((1 << c) - 1)
    half = 1 << (c - 1)
    for i in range(n):
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
            # The highest window keeps |digit| = half: there is no window above to carry into.
            if digit >= half and w < n_windows - 1:
                digit -= 1 << c
                carry = 1
            out[w, i] = digit


@kernel
def window_sum(F, points, digits, begin, end, buckets, n_buckets, running, sums, slot):
    """sums[slot] += the sum of digits[i] * points[i] over [begin, end). `digits` is one window's row.

    `buckets`, `running` (one point) and sums[slot] start at infinity.
    """
    for i in range(begin, end):
        digit = np.int64(digits[i])
        if digit > 0:
            add_affine(F, buckets, digit - 1, points, i, False)
        elif digit < 0:
            add_affine(F, buckets, -digit - 1, points, i, True)
    for b in range(n_buckets - 1, -1, -1):
        add_sum(F, running, 0, buckets, b)
        add_sum(F, sums, slot, running, 0)


@kernel
def horner(F, sums, n_windows, n_ranges, c, out):
    """out[0] = sum over w of 2^(c w) * (sums[w * n_ranges] + ... ). `out` starts at infinity."""
    for w in range(n_windows - 1, -1, -1):
        for _ in range(c):
            double(F, out, 0)
        for k in range(n_ranges):
            add_sum(F, out, 0, sums, w * n_ranges + k)
