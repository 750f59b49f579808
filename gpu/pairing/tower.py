"""Fp6 and Fp12 over Fp2 as LLVM functions on pointers.

Fp6 = Fp2[v]/(v^3 - xi), Fp12 = Fp6[w]/(w^2 - v). An Fp12 element is six Fp2 elements in this order: c0.v^0,
c0.v^1, c0.v^2, c1.v^0, c1.v^1, c1.v^2, so the powers of w are 0, 2, 4, 1, 3, 5 (`POWERS_OF_W`). Products by
Karatsuba (Devegili, O hEigeartaigh, Scott, Dahab, "Multiplication and squaring on pairing-friendly fields",
2006), squarings in the cyclotomic subgroup by Granger, Scott, "Faster squaring in the cyclotomic subgroup of
sixth degree extensions" (PKC 2010). Every function may write over one of its operands.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpu.curve.twist import CONJUGATE, constant, curve_of
from gpu.field.bodies import OPERATIONS, load, store
from gpu.field.kinds import kernel_field
from gpu.field.limbs import I64
from gpu.field.lowering import Machine, Operation
from gpu.field.tower import Fp2

POWERS_OF_W = (0, 2, 4, 1, 3, 5)


class Steps:
    """Formulas read as in the papers: each method is one operation on pointers."""

    def __init__(self, m: Machine) -> None:
        self.m = m

    def __getattr__(self, name: str) -> Any:
        operation = OPERATIONS.get(name) or TOWER[name]
        return lambda *pointers: self.m.call(operation, *pointers)


def parts(m: Machine, pointer: Any, count: int) -> list[Any]:
    """Pointers to the `count` Fp2 elements from `pointer` on."""
    return [m.element(pointer, i) for i in range(count)]


def block(m: Machine, count: int) -> Any:
    """A pointer to `count` fresh Fp2 elements in a row on the stack. Only at the top of a body."""
    slot = ir.ArrayType(I64, count * m.kind.words)
    return m.builder.bitcast(m.builder.alloca(slot), I64.as_pointer())


def _mul_xi(m: Machine, d: Any, a: Any) -> None:
    """d = xi a for xi = k + u: (k a0 - a1) + (a0 + k a1) u, with k a by doublings."""
    arith, (k, one) = m.arith, curve_of(m).xi
    if one != 1 or k < 1:
        raise ValueError(f"xi = {k} + {one} u is not of the form k + u")
    a0, a1 = load(m, a)

    def times_k(value: Any) -> Any:
        out = value
        for bit in bin(k)[3:]:
            out = arith.add(out, out)
            if bit == "1":
                out = arith.add(out, value)
        return out

    store(m, d, [arith.sub(times_k(a0), a1), arith.add(a0, times_k(a1))])


def _scale(m: Machine, d: Any, a: Any, k: Any) -> None:
    """d = a k, where k is one element of Fp."""
    prime = Machine(m.builder, kernel_field(m.kind.field))
    (factor,) = load(prime, k)
    store(m, d, [m.arith.mul(part, factor) for part in load(m, a)])


def _six_op(name: str) -> Any:
    """The Fp2 operation `name` on each of three coefficients."""

    def body(m: Machine, *pointers: Any) -> None:
        for each in zip(*(parts(m, pointer, 3) for pointer in pointers), strict=True):
            m.call(OPERATIONS[name], *each)

    return body


def _mul_v(m: Machine, d: Any, a: Any) -> None:
    """d = v a: (xi a2, a0, a1)."""
    f = Steps(m)
    (t,) = m.temporaries(1)
    a0, a1, a2 = parts(m, a, 3)
    d0, d1, d2 = parts(m, d, 3)
    f.mul_xi(t, a2)
    f.copy(d2, a1)
    f.copy(d1, a0)
    f.copy(d0, t)


def _six_mul(m: Machine, d: Any, a: Any, b: Any) -> None:
    f = Steps(m)
    v0, v1, v2, s, t, r0, r1, r2 = m.temporaries(8)
    a0, a1, a2 = parts(m, a, 3)
    b0, b1, b2 = parts(m, b, 3)
    d0, d1, d2 = parts(m, d, 3)
    f.mul(v0, a0, b0)
    f.mul(v1, a1, b1)
    f.mul(v2, a2, b2)

    def cross(out: Any, i: Any, j: Any, k: Any, n: Any, low: Any, high: Any) -> None:
        """out = (i + j)(k + n) - low - high."""
        f.add(s, i, j)
        f.add(t, k, n)
        f.mul(out, s, t)
        f.sub(out, out, low)
        f.sub(out, out, high)

    cross(r0, a1, a2, b1, b2, v1, v2)
    f.mul_xi(r0, r0)
    f.add(r0, r0, v0)
    cross(r1, a0, a1, b0, b1, v0, v1)
    f.mul_xi(s, v2)
    f.add(r1, r1, s)
    cross(r2, a0, a2, b0, b2, v0, v2)
    f.add(d2, r2, v1)
    f.copy(d0, r0)
    f.copy(d1, r1)


def _six_inv(m: Machine, d: Any, a: Any, norm_inverse: Any) -> None:
    """d = adj(a) * norm_inverse, where norm_inverse = 1 / `six_norm`(a)."""
    f = Steps(m)
    t0, t1, t2 = m.temporaries(3)
    _adjugate(m, (t0, t1, t2), a)
    for target, value in zip(parts(m, d, 3), (t0, t1, t2), strict=True):
        f.mul(target, value, norm_inverse)


def _six_norm(m: Machine, d: Any, a: Any) -> None:
    """d (one Fp2 element) = a adj(a) = a0 t0 + xi (a2 t1 + a1 t2)."""
    f = Steps(m)
    t0, t1, t2 = m.temporaries(3)
    _adjugate(m, (t0, t1, t2), a)
    a0, a1, a2 = parts(m, a, 3)
    f.mul(t1, t1, a2)
    f.mul(t2, t2, a1)
    f.add(t1, t1, t2)
    f.mul_xi(t1, t1)
    f.mul(t0, t0, a0)
    f.add(d, t0, t1)


def _adjugate(m: Machine, out: tuple[Any, Any, Any], a: Any) -> None:
    """a0^2 - xi a1 a2, xi a2^2 - a0 a1, a1^2 - a0 a2 into three fresh elements."""
    f = Steps(m)
    (s,) = m.temporaries(1)
    a0, a1, a2 = parts(m, a, 3)
    t0, t1, t2 = out
    f.mul(s, a1, a2)
    f.mul_xi(s, s)
    f.sqr(t0, a0)
    f.sub(t0, t0, s)
    f.sqr(t1, a2)
    f.mul_xi(t1, t1)
    f.mul(s, a0, a1)
    f.sub(t1, t1, s)
    f.sqr(t2, a1)
    f.mul(s, a0, a2)
    f.sub(t2, t2, s)


def _mul(m: Machine, d: Any, a: Any, b: Any) -> None:
    f = Steps(m)
    low, high, s, t = (block(m, 3) for _ in range(4))
    a0, a1 = a, m.element(a, 3)
    b0, b1 = b, m.element(b, 3)
    f.six_mul(low, a0, b0)
    f.six_mul(high, a1, b1)
    f.six_add(s, a0, a1)
    f.six_add(t, b0, b1)
    f.six_mul(s, s, t)
    f.six_sub(s, s, low)
    f.six_sub(m.element(d, 3), s, high)
    f.mul_v(high, high)
    f.six_add(d, low, high)


def _sqr(m: Machine, d: Any, a: Any) -> None:
    """(a0 + a1 w)^2 by two products: with t = a0 a1, c0 = (a0 + a1)(a0 + v a1) - t - v t, c1 = 2 t."""
    f = Steps(m)
    t, s, u = (block(m, 3) for _ in range(3))
    a0, a1 = a, m.element(a, 3)
    f.six_mul(t, a0, a1)
    f.six_add(s, a0, a1)
    f.mul_v(u, a1)
    f.six_add(u, u, a0)
    f.six_mul(s, s, u)
    f.six_sub(s, s, t)
    f.six_add(m.element(d, 3), t, t)
    f.mul_v(t, t)
    f.six_sub(d, s, t)


def _cyclotomic_sqr(m: Machine, d: Any, a: Any) -> None:
    """a^2 for a in the cyclotomic subgroup (a^(p^4 - p^2 + 1) = 1), by three squarings in Fp4."""
    f = Steps(m)
    s, r, t0, t1 = m.temporaries(4)
    out = block(m, 6)
    a0, a1, a2, a3, a4, a5 = parts(m, a, 6)
    o = parts(m, out, 6)

    def fp4(low: Any, high: Any, x: Any, y: Any) -> None:
        """low + high s = (x + y s)^2 with s^2 = xi."""
        f.sqr(t0, x)
        f.sqr(t1, y)
        f.add(s, x, y)
        f.sqr(s, s)
        f.sub(s, s, t0)
        f.sub(high, s, t1)
        f.mul_xi(t1, t1)
        f.add(low, t0, t1)

    def three(target: Any, square: Any, value: Any, subtract: bool) -> None:
        """target = 3 square -/+ 2 value."""
        if subtract:
            f.sub(t0, square, value)
        else:
            f.add(t0, square, value)
        f.add(t0, t0, t0)
        f.add(target, t0, square)

    fp4(o[0], r, a0, a4)
    three(o[0], o[0], a0, True)
    three(o[4], r, a4, False)
    fp4(o[1], r, a3, a2)
    three(o[1], o[1], a1, True)
    three(o[5], r, a5, False)
    fp4(o[2], r, a1, a5)
    three(o[2], o[2], a2, True)
    f.mul_xi(r, r)
    three(o[3], r, a3, False)
    for target, value in zip(parts(m, d, 6), o, strict=True):
        f.copy(target, value)


def _twelve_conj(m: Machine, d: Any, a: Any) -> None:
    """d = a^(p^6), the inverse in the cyclotomic subgroup."""
    f = Steps(m)
    for i, (target, value) in enumerate(zip(parts(m, d, 6), parts(m, a, 6), strict=True)):
        (f.copy if i < 3 else f.neg)(target, value)


def _frobenius(m: Machine, d: Any, a: Any) -> None:
    """d = a^p: coefficient k of w goes to its conjugate times xi^(k (p-1)/6)."""
    curve, f = curve_of(m), Steps(m)
    field = Fp2(curve.p)
    for k, target, value in zip(POWERS_OF_W, parts(m, d, 6), parts(m, a, 6), strict=True):
        factor = constant(m, field.power(curve.xi, k * (curve.p - 1) // 6))
        f.conj(target, value)
        f.mul(target, target, factor)


TOWER = {
    op.name: op
    for op in (
        Operation("mul_xi", _mul_xi, (1, 1)),
        CONJUGATE,
        Operation("scale", _scale, (1, 1, 1)),
        Operation("six_add", _six_op("add"), (3, 3, 3)),
        Operation("six_sub", _six_op("sub"), (3, 3, 3)),
        Operation("mul_v", _mul_v, (3, 3)),
        Operation("six_mul", _six_mul, (3, 3, 3)),
        Operation("six_inv", _six_inv, (3, 3, 1)),
        Operation("six_norm", _six_norm, (1, 3)),
        Operation("twelve_mul", _mul, (6, 6, 6)),
        Operation("twelve_sqr", _sqr, (6, 6)),
        Operation("cyclotomic_sqr", _cyclotomic_sqr, (6, 6)),
        Operation("twelve_conj", _twelve_conj, (6, 6)),
        Operation("frobenius", _frobenius, (6, 6)),
    )
}
