"""Is a point in the subgroup of order r? The exact test of `endomorphism.relation`, as straight lines of calls."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpu.curve.bodies import ADD_AFFINE, ADD_SUM, DOUBLE
from gpu.curve.endomorphism import endomorphisms, relation
from gpu.curve.scalar import add_affine
from gpu.curve.twist import CONJUGATE, constant, curve_of
from gpu.field.bodies import OPERATIONS, store
from gpu.field.compiled import intrinsic, kernel
from gpu.field.limbs import I64
from gpu.field.lowering import Machine, Operation, operation
from gpu.field.operations import sub


def _sums(m: Machine, count: int) -> list[Any]:
    """Pointers to fresh XYZZ points, not yet set. Only at the top of a body."""
    slot = ir.ArrayType(I64, 4 * m.kind.words)
    return [m.builder.bitcast(m.builder.alloca(slot), I64.as_pointer()) for _ in range(count)]


def _clear(m: Machine, s: Any) -> None:
    """s = infinity."""
    zero = [m.arith.constant(0)] * m.kind.degree
    for i in range(4):
        store(m, m.element(s, i), zero)


def _image(m: Machine, s: Any) -> None:
    """s = phi(s) on the curve, psi(s) on the twist, for an XYZZ point."""
    maps = endomorphisms(curve_of(m))
    factors = (maps.beta,) if m.kind.degree == 1 else (maps.psi_x, maps.psi_y)
    for i in range(4):
        m.call(CONJUGATE, m.element(s, i), m.element(s, i))
    for i, factor in enumerate(factors):
        m.call(OPERATIONS["mul"], m.element(s, i), m.element(s, i), constant(m, factor))


IMAGE = Operation("endomorphism", _image, (4,))


def _negate(m: Machine, s: Any) -> None:
    m.call(OPERATIONS["neg"], m.element(s, 1), m.element(s, 1))


def _times_x(m: Machine, s: Any) -> None:
    """s = [x]s, x being the curve's parameter."""
    (base,) = _sums(m, 1)
    for i in range(4):
        m.call(OPERATIONS["copy"], m.element(base, i), m.element(s, i))
    x = curve_of(m).x
    for bit in bin(abs(x))[3:]:
        m.call(DOUBLE, s)
        if bit == "1":
            m.call(ADD_SUM, s, base)
    if x < 0:
        _negate(m, s)


TIMES_X = Operation("times_x", _times_x, (4,))


def _member(m: Machine, point: Any) -> None:
    """Whether an XYZZ point lies in the subgroup of order r: `endomorphism.relation` by Horner's rule in x."""
    total, image = _sums(m, 2)
    _clear(m, total)
    for row in reversed(relation(curve_of(m), m.kind.degree)):
        m.call(TIMES_X, total)
        for i in range(4):
            m.call(OPERATIONS["copy"], m.element(image, i), m.element(point, i))
        for count in row:
            if count < 0:
                _negate(m, image)
            for _ in range(abs(count)):
                m.call(ADD_SUM, total, image)
            if count < 0:
                _negate(m, image)
            m.call(IMAGE, image)
    m.builder.ret(m.call(OPERATIONS["is_zero"], m.element(total, 2)))


MEMBER = Operation("member", _member, (4,), returns_bool=True)


def _member_affine(m: Machine, point: Any) -> None:
    (lifted,) = _sums(m, 1)
    _clear(m, lifted)
    m.call(ADD_AFFINE, lifted, point, ir.Constant(ir.IntType(1), 0))
    m.builder.ret(m.call(MEMBER, lifted))


MEMBER_AFFINE = Operation("member_affine", _member_affine, (2,), returns_bool=True)


@intrinsic
def member(typingctx, field, s, i):
    """Whether the XYZZ point s[i], on the curve or infinite, is in the subgroup of order r."""
    return operation(MEMBER, field, s, i)


@intrinsic
def member_affine(typingctx, field, p, i):
    """The same of an affine point p[i]."""
    return operation(MEMBER_AFFINE, field, p, i)


@kernel
def first_outside(F, points, begin, end, sums, n_rows, count, total):
    """The index of the first affine point in [begin, end) outside the subgroup of order r; else `end`, when one of
    the `count` sums over the rows is (of affine points, sums[row * count + column], `n_rows` rows); else -1. `total`
    is one XYZZ point of scratch. All points must be on the curve.
    """
    for i in range(begin, end):
        if not member_affine(F, points, i):
            return i
    for k in range(count):
        sub(F, total, 2, total, 2, total, 2)
        for row in range(n_rows):
            add_affine(F, total, 0, sums, row * count + k, False)
        if not member(F, total, 0):
            return end
    return -1
