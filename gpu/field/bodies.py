"""Bodies of the scalar operations on pointers, for a prime field (degree 1) and for Fp[u]/(u^2 + 1)
(degree 2).

Every body loads all operands before it stores, so a destination may be one of the operands.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpu.field import limbs as emit
from gpu.field.lowering import Machine, Operation

Parts = list[emit.Limbs]
"""One list of limbs for each coefficient of the extension."""


def load(m: Machine, pointer: Any) -> Parts:
    """Reads one element."""
    b = m.builder
    field = m.kind.field
    words = []
    for i in range(m.kind.degree * field.limbs):
        word = b.load(b.gep(pointer, [ir.Constant(emit.I64, i)]))
        word.align = 1  # sections of a mapped file start anywhere
        words.append(word)
    return [words[i * field.limbs : (i + 1) * field.limbs] for i in range(m.kind.degree)]


def store(m: Machine, pointer: Any, parts: Parts) -> None:
    """Writes one element."""
    for i, limb in enumerate([limb for part in parts for limb in part]):
        m.builder.store(limb, m.builder.gep(pointer, [ir.Constant(emit.I64, i)])).align = 1


def _mul(m: Machine, *args: Any) -> None:
    b = m.builder
    field = m.kind.field
    x, y = (load(m, pointer) for pointer in args[1:])
    if m.kind.degree == 1:
        store(m, args[0], [emit.mul(b, field, x[0], y[0])])
        return
    # Karatsuba: three products instead of four.
    low, high = emit.mul(b, field, x[0], y[0]), emit.mul(b, field, x[1], y[1])
    cross = emit.mul(b, field, emit.add_lazily(b, x[0], x[1]), emit.add_lazily(b, y[0], y[1]))
    cross = emit.sub(b, field, emit.sub(b, field, cross, low), high)
    store(m, args[0], [emit.sub(b, field, low, high), cross])


def _sqr(m: Machine, *args: Any) -> None:
    b = m.builder
    field = m.kind.field
    x = load(m, args[1])
    if m.kind.degree == 1:
        store(m, args[0], [emit.mul(b, field, x[0], x[0])])
        return
    real = emit.mul(b, field, emit.add_lazily(b, x[0], x[1]), emit.sub(b, field, x[0], x[1]))
    cross = emit.mul(b, field, x[0], x[1])
    store(m, args[0], [real, emit.add(b, field, cross, cross)])


def _add(m: Machine, *args: Any) -> None:
    b = m.builder
    field = m.kind.field
    x, y = (load(m, pointer) for pointer in args[1:])
    store(m, args[0], [emit.add(b, field, left, right) for left, right in zip(x, y, strict=True)])


def _sub(m: Machine, *args: Any) -> None:
    b = m.builder
    field = m.kind.field
    x, y = (load(m, pointer) for pointer in args[1:])
    store(m, args[0], [emit.sub(b, field, left, right) for left, right in zip(x, y, strict=True)])


def _neg(m: Machine, *args: Any) -> None:
    b = m.builder
    field = m.kind.field
    zero = emit.constants(0, field.limbs)
    parts = load(m, args[1])
    store(m, args[0], [emit.sub(b, field, zero, part) for part in parts])


def _copy(m: Machine, *args: Any) -> None:
    store(m, args[0], load(m, args[1]))


def _is_zero(m: Machine, *args: Any) -> None:
    b = m.builder
    b.ret(emit.is_zero(b, [limb for part in load(m, args[0]) for limb in part]))


def _equal(m: Machine, *args: Any) -> None:
    b = m.builder
    x, y = ([limb for part in load(m, pointer) for limb in part] for pointer in args)
    b.ret(emit.is_zero(b, [b.xor(left, right) for left, right in zip(x, y, strict=True)]))


def _reduced(m: Machine, *args: Any) -> None:
    b = m.builder
    field = m.kind.field
    parts = load(m, args[0])
    verdict = emit.is_reduced(b, field, parts[0])
    for part in parts[1:]:
        verdict = b.and_(verdict, emit.is_reduced(b, field, part))
    b.ret(verdict)


OPERATIONS = {
    op.name: op
    for op in (
        Operation("mul", _mul, (1, 1, 1)),
        Operation("add", _add, (1, 1, 1)),
        Operation("sub", _sub, (1, 1, 1)),
        Operation("sqr", _sqr, (1, 1)),
        Operation("neg", _neg, (1, 1)),
        Operation("copy", _copy, (1, 1)),
        Operation("is_zero", _is_zero, (1,), returns_bool=True),
        Operation("equal", _equal, (1, 1), returns_bool=True),
        Operation("reduced", _reduced, (1,), returns_bool=True),
    )
}
