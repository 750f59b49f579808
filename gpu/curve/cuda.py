"""The group law inside CUDA kernels, on values, for G1 and G2 of both curves alike.

An affine point is a pair of elements (x, y), infinity all zero; a sum is XYZZ: (X, Y, ZZ, ZZZ), infinity ZZ = 0, as in
`gpu.curve.bodies`. Formulas: Explicit-Formulas Database, shortw/xyzz (madd-2008-s, add-2008-s, dbl-2008-s-1), a = 0.
"""

from __future__ import annotations

from numba import cuda
from numba.cuda import types

from gpu.field.cuda import add, double, is_zero, load, mul, mul2add, neg, one, select, sqr, store, sub, zero

uint32, uint64 = types.uint32, types.uint64

SIGN = 1 << 31
"""Bit of a point's number that says: its opposite."""


@cuda.jit(device=True)
def load_point(F, points, number):
    """The affine point that `number` means, or its opposite where it has the bit SIGN."""
    at = uint64(number & uint32(SIGN - 1)) << uint64(1)
    x, y = load(F, points, at), load(F, points, at | uint64(1))
    return x, select(F, number >= uint32(SIGN), neg(F, y), y)


@cuda.jit(device=True)
def load_sum(F, sums, index):
    """The XYZZ point at `index`."""
    at = uint64(index) << uint64(2)
    return (
        load(F, sums, at),
        load(F, sums, at | uint64(1)),
        load(F, sums, at | uint64(2)),
        load(F, sums, at | uint64(3)),
    )


@cuda.jit(device=True)
def store_sum(F, sums, index, s):
    """sums[index] = s."""
    at = uint64(index) << uint64(2)
    store(F, sums, at, s[0])
    store(F, sums, at | uint64(1), s[1])
    store(F, sums, at | uint64(2), s[2])
    store(F, sums, at | uint64(3), s[3])


@cuda.jit(device=True)
def infinity(F):
    return zero(F), zero(F), zero(F), zero(F)


@cuda.jit(device=True)
def double_sum(F, s):
    """2 s. Infinity and points of order two give infinity by themselves: V, hence the new ZZ, is zero."""
    u = double(F, s[1])
    v = sqr(F, u)
    w = mul(F, u, v)
    t = mul(F, s[0], v)  # S
    x_squared = sqr(F, s[0])
    m = add(F, double(F, x_squared), x_squared)
    x = sub(F, sqr(F, m), double(F, t))
    y = mul2add(F, m, sub(F, t, x), neg(F, w), s[1])
    return x, y, mul(F, v, s[2]), mul(F, w, s[3])


@cuda.jit(device=True)
def finish(F, x, y, zz, zzz, p, r):
    """The common end of both additions: x, y are U1, S1 (of an affine point, itself); p and r are P and R, p not
    zero.
    """
    pp = sqr(F, p)
    ppp = mul(F, p, pp)
    q = mul(F, x, pp)
    new_x = sub(F, sub(F, sqr(F, r), ppp), double(F, q))
    new_y = mul2add(F, r, sub(F, q, new_x), neg(F, y), ppp)
    return new_x, new_y, mul(F, zz, pp), mul(F, zzz, ppp)


@cuda.jit(device=True)
def add_point(F, s, x, y):
    """s + (x, y), in every case."""
    if is_zero(F, x) and is_zero(F, y):
        return s
    if is_zero(F, s[2]):
        return x, y, one(F), one(F)
    p = sub(F, mul(F, x, s[2]), s[0])
    r = sub(F, mul(F, y, s[3]), s[1])
    if is_zero(F, p):
        if is_zero(F, r):
            return double_sum(F, s)
        return infinity(F)
    return finish(F, s[0], s[1], s[2], s[3], p, r)


@cuda.jit(device=True)
def add_sums(F, s, q):
    """s + q, in every case."""
    if is_zero(F, q[2]):
        return s
    if is_zero(F, s[2]):
        return q
    u = mul(F, s[0], q[2])
    v = mul(F, s[1], q[3])
    p = sub(F, mul(F, q[0], s[2]), u)
    r = sub(F, mul(F, q[1], s[3]), v)
    if is_zero(F, p):
        if is_zero(F, r):
            return double_sum(F, s)
        return infinity(F)
    return finish(F, u, v, mul(F, s[2], q[2]), mul(F, s[3], q[3]), p, r)
