"""The end of a multi-scalar multiplication on Python ints: the sums of its windows, put together.

Formulas: Explicit-Formulas Database, shortw/xyzz (add-2008-s, dbl-2008-s-1), a = 0. Without an inversion a step, 255
doublings take a millisecond or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu.curve.reference import Point
from gpu.field.tower import Fp

Sum = tuple[Any, Any, Any, Any]
"""X, Y, ZZ, ZZZ of an XYZZ point; infinity is ZZ = 0."""


def horner(f: Fp, windows: Sequence[Sum], c: int) -> Point:
    """The sum of 2^(c w) * windows[w]."""
    total: Sum = (f.zero,) * 4
    for window in reversed(windows):
        for _ in range(c):
            total = _double(f, total)
        total = _add(f, total, window)
    x, y, zz, zzz = total
    return None if zz == f.zero else (f.mul(x, f.inv(zz)), f.mul(y, f.inv(zzz)))


def _double(f: Fp, s: Sum) -> Sum:
    x, y, zz, zzz = s
    u = f.add(y, y)
    v = f.mul(u, u)
    w = f.mul(u, v)
    t = f.mul(x, v)
    m = f.scale(f.mul(x, x), 3)
    new_x = f.sub(f.mul(m, m), f.add(t, t))
    return new_x, f.sub(f.mul(m, f.sub(t, new_x)), f.mul(w, y)), f.mul(v, zz), f.mul(w, zzz)


def _add(f: Fp, s: Sum, q: Sum) -> Sum:
    if q[2] == f.zero or s[2] == f.zero:
        return s if q[2] == f.zero else q
    u, v = f.mul(s[0], q[2]), f.mul(s[1], q[3])
    p, r = f.sub(f.mul(q[0], s[2]), u), f.sub(f.mul(q[1], s[3]), v)
    if p == f.zero:
        return _double(f, s) if r == f.zero else (f.zero,) * 4
    pp = f.mul(p, p)
    ppp, t = f.mul(p, pp), f.mul(u, pp)
    new_x = f.sub(f.sub(f.mul(r, r), ppp), f.add(t, t))
    new_y = f.sub(f.mul(r, f.sub(t, new_x)), f.mul(v, ppp))
    return new_x, new_y, f.mul(f.mul(s[2], q[2]), pp), f.mul(f.mul(s[3], q[3]), ppp)
