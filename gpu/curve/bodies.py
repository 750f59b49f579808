"""The group law as LLVM functions on pointers, written once for every coordinate field: G1 and G2 of both
curves.

Affine points are two elements (x, y), infinity all zero, as in a `.zkey`. Sums are XYZZ: four elements (X, Y,
ZZ, ZZZ) with x = X/ZZ, y = Y/ZZZ, ZZ^3 = ZZZ^2, infinity ZZ = 0. Formulas: Explicit-Formulas Database,
shortw/xyzz (madd-2008-s, add-2008-s, dbl-2008-s-1), a = 0. Equal, opposite and infinite points are right in
every function.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpu.field.bodies import OPERATIONS
from gpu.field.limbs import I64, constants
from gpu.field.lowering import Machine, Operation


class _Steps:
    """Formulas read as in the database: each method is one field operation on pointers."""

    def __init__(self, m: Machine) -> None:
        self.m = m

    def __getattr__(self, name: str) -> Any:
        operation = OPERATIONS[name]
        return lambda *pointers: self.m.call(operation, *pointers)


def _coordinates(m: Machine, point: Any, count: int) -> list[Any]:
    return [m.element(point, i) for i in range(count)]


def _copy_point(m: Machine, target: Any, source: Any, count: int) -> None:
    for d, s in zip(_coordinates(m, target, count), _coordinates(m, source, count), strict=True):
        m.call(OPERATIONS["copy"], d, s)


def _double(m: Machine, s: Any) -> None:
    """s = 2 s. Infinity and points of order two give infinity by themselves: V, hence the new ZZ, is zero."""
    x, y, zz, zzz = _coordinates(m, s, 4)
    u, v, w, t, k = m.temporaries(5)
    f = _Steps(m)
    f.add(u, y, y)
    f.sqr(v, u)
    f.mul(w, u, v)
    f.mul(t, x, v)  # S
    f.sqr(k, x)
    f.add(u, k, k)
    f.add(k, k, u)  # M = 3 X^2
    f.mul(u, w, y)
    f.sqr(x, k)
    f.sub(x, x, t)
    f.sub(x, x, t)
    f.sub(t, t, x)
    f.mul(t, t, k)
    f.sub(y, t, u)
    f.mul(zz, zz, v)
    f.mul(zzz, zzz, w)


DOUBLE = Operation("double", _double, (4,))


def _finish(m: Machine, s: Any, p: Any, r: Any) -> None:
    """The common end of both additions: s holds U1, S1, ZZ, ZZZ; p and r are P and R of the database, p
    not zero.
    """
    x, y, zz, zzz = _coordinates(m, s, 4)
    pp, ppp, q = m.temporaries(3)
    f = _Steps(m)
    f.sqr(pp, p)
    f.mul(ppp, p, pp)
    f.mul(q, x, pp)
    f.mul(zz, zz, pp)
    f.mul(zzz, zzz, ppp)
    f.mul(pp, y, ppp)
    f.sqr(x, r)
    f.sub(x, x, ppp)
    f.sub(x, x, q)
    f.sub(x, x, q)
    f.sub(q, q, x)
    f.mul(q, q, r)
    f.sub(y, q, pp)


FINISH = Operation("xyzz_finish", _finish, (4, 1, 1))


def _same_x(m: Machine, s: Any, p: Any, r: Any) -> None:
    """Returns from the caller when p is zero, with s doubled (r zero too) or infinity (opposite points)."""
    f, b = _Steps(m), m.builder
    with b.if_then(f.is_zero(p), likely=False):
        with b.if_else(f.is_zero(r)) as (equal, opposite):
            with equal:
                m.call(DOUBLE, s)
            with opposite:
                zz = m.element(s, 2)
                f.sub(zz, zz, zz)
        b.ret_void()


def _add_affine(m: Machine, s: Any, point: Any, negate: Any) -> None:
    """s += point, or s -= point when `negate`."""
    f, b = _Steps(m), m.builder
    x2, y2, p, r = m.temporaries(4)
    f.copy(x2, point)
    f.copy(y2, m.element(point, 1))
    with b.if_then(b.and_(f.is_zero(x2), f.is_zero(y2)), likely=False):
        b.ret_void()
    with b.if_then(negate):
        f.neg(y2, y2)
    x, y, zz, zzz = _coordinates(m, s, 4)
    with b.if_then(f.is_zero(zz), likely=False):
        f.copy(x, x2)
        f.copy(y, y2)
        for target in (zz, zzz):
            _store_one(m, target)
        b.ret_void()
    f.mul(p, x2, zz)
    f.sub(p, p, x)
    f.mul(r, y2, zzz)
    f.sub(r, r, y)
    _same_x(m, s, p, r)
    m.call(FINISH, s, p, r)


def _store_one(m: Machine, target: Any) -> None:
    words = constants(m.kind.field.r, m.kind.words)
    for i, word in enumerate(words):
        m.builder.store(word, m.builder.gep(target, [ir.Constant(I64, i)]))


def _add_sum(m: Machine, s: Any, q: Any) -> None:
    """s += q, both XYZZ; not the same place."""
    f, b = _Steps(m), m.builder
    u1, s1, p, r = m.temporaries(4)
    x, y, zz, zzz = _coordinates(m, s, 4)
    x2, y2, zz2, zzz2 = _coordinates(m, q, 4)
    with b.if_then(f.is_zero(zz2)):
        b.ret_void()
    with b.if_then(f.is_zero(zz), likely=False):
        _copy_point(m, s, q, 4)
        b.ret_void()
    f.mul(u1, x, zz2)
    f.mul(p, x2, zz)
    f.sub(p, p, u1)
    f.mul(s1, y, zzz2)
    f.mul(r, y2, zzz)
    f.sub(r, r, s1)
    _same_x(m, s, p, r)
    f.copy(x, u1)
    f.copy(y, s1)
    f.mul(zz, zz, zz2)
    f.mul(zzz, zzz, zzz2)
    m.call(FINISH, s, p, r)


def _valid(m: Machine, point: Any, constant: Any) -> None:
    """Whether an affine point has reduced coordinates and is infinity or on y^2 = x^3 + constant."""
    f, b = _Steps(m), m.builder
    left, right = m.temporaries(2)
    x, y = _coordinates(m, point, 2)
    small = b.and_(f.reduced(x), f.reduced(y))
    f.sqr(left, x)
    f.mul(left, left, x)
    f.add(left, left, constant)
    f.sqr(right, y)
    infinite = b.and_(f.is_zero(x), f.is_zero(y))
    b.ret(b.and_(small, b.or_(infinite, f.equal(left, right))))


ADD_AFFINE = Operation("add_affine", _add_affine, (4, 2), flag=True)
ADD_SUM = Operation("add_sum", _add_sum, (4, 4))
VALID = Operation("valid_affine", _valid, (2, 1), returns_bool=True)
