"""A kernel that does every intrinsic, so that tests can compare them with the Python-int oracle."""

from __future__ import annotations

from numba import cuda
from numba.cuda import types

from gpu.field.cuda import (
    add,
    atomic_add,
    double,
    equal,
    from_montgomery,
    is_zero,
    load,
    load_tile,
    mul,
    mul2add,
    neg,
    one,
    select,
    sqr,
    store,
    store_tile,
    sub,
    zero,
)

N_RESULTS = 13
_THREADS = 32
_MOST_LIMBS = 24
_SHARED = _THREADS * _MOST_LIMBS


def every_operation(F, out, flags, counter, a, b, n):
    """`n` pairs of elements, one a thread; 13 results and two flags for each."""
    shared = cuda.shared.array(_SHARED, types.uint32)
    lane = types.uint32(cuda.threadIdx.x)
    i = types.uint32(cuda.grid(1))
    if i >= n:
        return
    x, y = load(F, a, i), load(F, b, i)
    store_tile(F, shared, lane, types.uint32(_THREADS), y)
    at = types.uint32(N_RESULTS) * i
    store(F, out, at, mul(F, x, y))
    store(F, out, at + 1, sqr(F, x))
    store(F, out, at + 2, add(F, x, y))
    store(F, out, at + 3, sub(F, x, y))
    store(F, out, at + 4, neg(F, x))
    store(F, out, at + 5, double(F, x))
    store(F, out, at + 6, mul2add(F, x, y, y, y))
    store(F, out, at + 7, from_montgomery(F, x))
    store(F, out, at + 8, zero(F))
    store(F, out, at + 9, one(F))
    store(F, out, at + 10, select(F, is_zero(F, x), y, x))
    store(F, out, at + 11, load_tile(F, shared, lane, types.uint32(_THREADS)))
    store(F, out, at + 12, mul2add(F, x, x, neg(F, y), y))
    flags[types.uint32(2) * i] = types.uint32(is_zero(F, x))
    flags[types.uint32(2) * i + 1] = types.uint32(equal(F, x, y))
    atomic_add(counter, types.uint32(0), i + types.uint32(1))
