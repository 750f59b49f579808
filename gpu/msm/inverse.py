"""Inversion modulo an odd prime, for batches: some 3 us (254 bits) or 5 us (381 bits), a fraction of Fermat's way.

Pornin, "Optimized Binary GCD for Modular Inversion" (eprint 2020/972), in limbs of 31 bits: 31 steps on 64-bit
approximations give factors of at most 31 bits, so that every sum of two products fits an int64. Its time depends on
the value.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import types

from gpu.field.compiled import callback
from gpu.field.params import Field

_STEP = 31
_MASK = (1 << _STEP) - 1


def constants(field: Field, numerator: int) -> np.ndarray:
    """What `invert` needs to know, as int64: the number of 64-bit words, that of 31-bit limbs, -1/p mod 2^31, p and
    `numerator` mod p in limbs.
    """
    n = -(-field.modulus.bit_length() // _STEP)
    numbers = (field.modulus, numerator % field.modulus)
    limbs = [number >> (_STEP * i) & _MASK for number in numbers for i in range(n)]
    return np.array([field.limbs, n, -pow(field.modulus, -1, 1 << _STEP) % (1 << _STEP), *limbs], np.int64)


@cache
def address() -> int:
    """Where the compiled `invert` is: void (uint64 *words, int64 *known). One compilation serves every field."""
    signature = types.void(types.CPointer(types.uint64), types.CPointer(types.int64))
    return callback(invert, signature)


def invert(words, known):
    """words = numerator / words mod p, plain integers below p; zero stays zero. `known` comes from `constants`."""
    n_words, n, minus_inverse = known[0], known[1], known[2]
    p = 3  # where known holds the modulus
    # The numbers a, b, u, v start at 0, n, 2 n, 3 n. With y the value, a = y u / numerator and b = y v / numerator mod
    # p throughout; in the end a = 0 and b = 1.
    state = np.zeros(64, np.int64)
    union = np.uint64(0)
    for k in range(n_words):
        union |= words[k]
    if union == 0:
        return
    for i in range(n):
        word, shift = _STEP * i >> 6, _STEP * i & 63
        low = words[word] >> np.uint64(shift)
        if shift > 64 - _STEP and word + 1 < n_words:
            low |= words[word + 1] << np.uint64(64 - shift)
        state[i] = np.int64(low) & _MASK
        state[n + i] = known[p + i]
        state[2 * n + i] = known[p + n + i]
    top = n - 1
    while True:
        # The lowest 31 bits of a and b under their 33 highest, counted from the top of the longer one.
        while top > 1 and (state[top] | state[n + top]) == 0:
            top -= 1
        if top == 1 and (state[0] | state[1]) == 0:
            break
        high_a = state[top] << _STEP | state[top - 1]
        high_b = state[n + top] << _STEP | state[n + top - 1]
        if top > 1:
            length = 0
            while (state[top] | state[n + top]) >> length:
                length += 1
            more = 2 - length
            if more <= 0:
                high_a, high_b = high_a >> -more, high_b >> -more
            else:
                high_a = high_a << more | state[top - 2] >> (_STEP - more)
                high_b = high_b << more | state[n + top - 2] >> (_STEP - more)
            high_a, high_b = high_a << _STEP | state[0], high_b << _STEP | state[n]
        x, y = np.uint64(high_a), np.uint64(high_b)
        # 31 steps of the binary GCD, kept as factors: 2^31 a' = f0 a + g0 b, 2^31 b' = f1 a + g1 b.
        f0, g0, f1, g1 = 1, 0, 0, 1
        for _ in range(_STEP):
            if x & np.uint64(1):
                if x < y:
                    x, y = y, x
                    f0, g0, f1, g1 = f1, g1, f0, g0
                x -= y
                f0 -= f1
                g0 -= g1
            x >>= np.uint64(1)
            f1 <<= 1
            g1 <<= 1
        # a and b, without their signs, which go to u and v by way of the factors.
        carry_a = carry_b = 0
        for i in range(n):
            left, right = state[i], state[n + i]
            carry_a += left * f0 + right * g0
            carry_b += left * f1 + right * g1
            if i:
                state[i - 1] = carry_a & _MASK
                state[n + i - 1] = carry_b & _MASK
            carry_a >>= _STEP
            carry_b >>= _STEP
        state[n - 1], state[2 * n - 1] = carry_a & _MASK, carry_b & _MASK
        if carry_a < 0:
            f0, g0 = -f0, -g0
        if carry_b < 0:
            f1, g1 = -f1, -g1
        for first, negative in ((0, carry_a < 0), (n, carry_b < 0)):
            if negative:
                carry = 0
                for i in range(first, first + n):
                    carry -= state[i]
                    state[i] = carry & _MASK
                    carry >>= _STEP
        # u and v mod p, divided as Montgomery does: by adding multiples of p.
        u, v = 2 * n, 3 * n
        add_u = ((state[u] * f0 + state[v] * g0) & _MASK) * minus_inverse & _MASK
        add_v = ((state[u] * f1 + state[v] * g1) & _MASK) * minus_inverse & _MASK
        carry_u = carry_v = 0
        for i in range(n):
            left, right = state[u + i], state[v + i]
            carry_u += left * f0 + right * g0
            carry_v += left * f1 + right * g1
            low_u = (carry_u & _MASK) + add_u * known[p + i]
            low_v = (carry_v & _MASK) + add_v * known[p + i]
            if i:
                state[u + i - 1] = low_u & _MASK
                state[v + i - 1] = low_v & _MASK
            carry_u = (carry_u >> _STEP) + (low_u >> _STEP)
            carry_v = (carry_v >> _STEP) + (low_v >> _STEP)
        state[u + n - 1], state[v + n - 1] = carry_u, carry_v
        for first in (u, v):
            # Into [0, p); the highest limb is signed.
            while True:
                factor = 1
                if state[first + n - 1] >= 0:
                    i = n - 1
                    while i > 0 and state[first + i] == known[p + i]:
                        i -= 1
                    if state[first + i] < known[p + i]:
                        break
                    factor = -1
                carry = 0
                for i in range(n - 1):
                    carry += state[first + i] + factor * known[p + i]
                    state[first + i] = carry & _MASK
                    carry >>= _STEP
                state[first + n - 1] += carry + factor * known[p + n - 1]
    for k in range(n_words):
        words[k] = 0
    for i in range(n):
        word, shift = _STEP * i >> 6, _STEP * i & 63
        limb = np.uint64(state[3 * n + i])
        words[word] |= limb << np.uint64(shift)
        if shift > 64 - _STEP and word + 1 < n_words:
            words[word + 1] |= limb >> np.uint64(64 - shift)
