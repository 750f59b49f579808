"""Scalars made ready for Pippenger's bucket method: centred, sorted by length, and cut into signed digits.

A scalar s > r/2 counts as -(r - s), so small negative values are short too. To all magnitudes the constant
K = (2^(c-1) - 1) (1 + 2^c + ...) is added once. Digit w, between 1 - 2^(c-1) and 2^(c-1), is then the plain digit w
less 2^(c-1) - 1: no carry goes from window to window, so every window can be read by itself. The highest window has
nothing added and nothing taken away.

These kernels know no field: one compilation serves all groups.
"""

from __future__ import annotations

import numpy as np

from gpu.field.compiled import kernel


@kernel
def centre(scalars, i, order, out):
    """out[0..4) = |s| for s = scalars[i] (four words) taken in (-r/2, r/2]; returns (bit length, whether negative).

    `order`: r in four words, then (r - 1)/2.
    """
    negative = False
    for k in range(3, -1, -1):
        if scalars[4 * i + k] != order[4 + k]:
            negative = scalars[4 * i + k] > order[4 + k]
            break
    borrow = np.uint64(0)
    bits = 0
    for k in range(4):
        word = scalars[4 * i + k]
        if negative:
            less = order[k] - word
            word = less - borrow
            borrow = np.uint64(1) if order[k] < scalars[4 * i + k] or less < borrow else np.uint64(0)
        out[k] = word
        if word:
            bits = 64 * k
            while word:
                word >>= np.uint64(1)
                bits += 1
    return bits, negative


@kernel
def measure(scalars, order):
    """Of all scalars, centred: the longest's bits, the sum of bits, and how many are not zero."""
    longest, total, n = 0, 0, 0
    magnitude = np.empty(4, np.uint64)
    for i in range(len(scalars) // 4):
        bits, _ = centre(scalars, i, order, magnitude)
        if bits:
            n += 1
            total += bits
            longest = max(longest, bits)
    return longest, total, n


@kernel
def arrange(scalars, begin, end, points, point_bytes, order, c, n_windows, magnitudes, refs, needed):
    """The scalars in [begin, end) that are not zero and whose points are not infinity, those of most digits first.

    magnitudes[4 k ..]: |s| + K; refs[k]: 2 i, plus 1 for a negative one. Returns counts: counts[w] is how many have a
    digit w, so these are the first ones. `needed` is scratch, one byte a scalar.
    """
    counts = np.zeros(n_windows + 1, np.int64)
    word = np.empty(4, np.uint64)
    for i in range(begin, end):
        bits, _ = centre(scalars, i, order, word)
        digits = min(n_windows, (bits + c) // c)
        if bits == 0:
            digits = 0
        else:
            infinite = True
            for k in range(i * point_bytes, (i + 1) * point_bytes):
                if points[k]:
                    infinite = False
                    break
            if infinite:
                digits = 0
        needed[i - begin] = digits
        if digits:
            counts[digits - 1] += 1
    for w in range(n_windows - 2, -1, -1):
        counts[w] += counts[w + 1]
    places = counts[1:].copy()
    offset = np.zeros(4, np.uint64)
    for w in range(n_windows - 1):
        one, shift = w * c >> 6, w * c & 63
        offset[one] |= np.uint64((1 << (c - 1)) - 1) << np.uint64(shift)
        if shift + c > 64:
            offset[one + 1] |= np.uint64((1 << (c - 1)) - 1) >> np.uint64(64 - shift)
    for i in range(begin, end):
        digits = np.int64(needed[i - begin])
        if digits == 0:
            continue
        place = places[digits - 1]
        places[digits - 1] += 1
        _, negative = centre(scalars, i, order, word)
        carry = np.uint64(0)
        for k in range(4):
            total = word[k] + offset[k]
            over = total < offset[k]
            total += carry
            carry = np.uint64(1) if over or total < carry else np.uint64(0)
            magnitudes[4 * place + k] = total
        refs[place] = 2 * i + negative
    return counts


@kernel
def sort_window(magnitudes, refs, n, w, c, top, first, targets, sorted_refs, at, buckets):
    """The references of the digits of window w by bucket, from place `at` on: targets are first + |digit| - 1.

    `top`: whether w is the highest window. `buckets`: scratch of 2^(c-1) + 1. Returns the place after the last one.
    """
    half = 1 << (c - 1)
    offset = 0 if top else half - 1
    word, shift = w * c >> 6, np.uint64(w * c & 63)
    joins = word < 3 and (w * c & 63) + c > 64
    mask = np.uint64(2 * half - 1)
    buckets[: half + 1] = 0
    for two in range(2):
        for k in range(n):
            raw = magnitudes[4 * k + word] >> shift
            if joins:
                raw |= magnitudes[4 * k + word + 1] << (np.uint64(64) - shift)
            digit = np.int64(raw & mask) - offset
            if digit == 0:
                continue
            bucket = abs(digit)
            if two:
                place = buckets[bucket - 1]
                buckets[bucket - 1] = place + 1
                targets[place] = first + bucket - 1
                sorted_refs[place] = refs[k] ^ np.int32(digit < 0)
            else:
                buckets[bucket] += 1
        if two == 0:
            buckets[0] = at
            for b in range(1, half + 1):
                buckets[b] += buckets[b - 1]
    return buckets[half - 1]


@kernel
def merge_items(slots, point_words, level, c, n_windows, targets, refs):
    """One step from buckets to sums by bits: of the buckets j 2^level, odd ones are added to the bucket below them
    (j - 1), so that even ones stand for j/2 in the next step, and to sum `level` of their window.

    Windows have 2^(c-1) buckets each; their c sums a window follow all buckets. Returns the number of items.
    """
    half, step = 1 << (c - 1), 1 << level
    n = 0
    for w in range(n_windows):
        for to_sum in range(2):
            for bucket in range(step if to_sum else 3 * step, half + 1, 2 * step):
                slot = w * half + bucket - 1
                empty = True
                for word in range(slot * point_words, (slot + 1) * point_words):
                    if slots[word]:
                        empty = False
                        break
                if empty:
                    continue
                targets[n] = n_windows * half + w * c + level if to_sum else slot - step
                refs[n] = 2 * slot
                n += 1
    return n
