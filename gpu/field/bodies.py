"""Bodies of the operations on pointers, for a prime field (degree 1) and for Fp[u]/(u^2 + 1) (degree 2), one
element or eight at a time.

Every body loads all operands before it stores, so a destination may be one of the operands.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpu.field.limbs import I64, is_reduced
from gpu.field.lowering import WORDS, Machine, Operation

Parts = list[Any]
"""A value of the arithmetic for each coefficient of the extension."""


def load(m: Machine, pointer: Any) -> Parts:
    """Reads one element (block)."""
    parts: Parts = m.arith.load(pointer)
    return parts


def store(m: Machine, pointer: Any, parts: Parts) -> None:
    """Writes one element (block)."""
    m.arith.store(pointer, parts)


def product(a: Any, x: Parts, y: Parts, places: tuple[Any, Any] | None = None) -> Parts:
    """x y. Karatsuba over the extension: three products instead of four. `places`: pointers that x and y were loaded
    from, where memory has not changed since.
    """
    if len(x) == 1:
        return [a.product_of(*places) if places else a.mul(x[0], y[0])]
    if places:
        size = a.kind.words // 2
        seconds = (a.b.gep(place, [ir.Constant(I64, size)]) for place in places)
        low, high = a.product_of(*places), a.product_of(*seconds)
    else:
        low, high = a.mul(x[0], y[0]), a.mul(x[1], y[1])
    cross = a.mul(a.add_lazily(x[0], x[1]), a.add_lazily(y[0], y[1]))
    return [a.sub(low, high), a.sub(a.sub(cross, low), high)]


def square(a: Any, x: Parts) -> Parts:
    """x^2. Over the extension (x0 + x1)(x0 - x1) and 2 x0 x1."""
    if len(x) == 1:
        return [a.sqr(x[0])]
    real = a.mul(a.add_lazily(x[0], x[1]), a.sub(x[0], x[1]))
    cross = a.mul(x[0], x[1])
    return [real, a.add(cross, cross)]


def _mul(m: Machine, *args: Any) -> None:
    x, y = (load(m, pointer) for pointer in args[1:])
    store(m, args[0], product(m.arith, x, y, (args[1], args[2])))


def _sqr(m: Machine, *args: Any) -> None:
    x = load(m, args[1])
    store(m, args[0], square(m.arith, x) if len(x) > 1 or m.kind.lanes > 1 else [m.arith.product_of(args[1], args[1])])


def _add(m: Machine, *args: Any) -> None:
    x, y = (load(m, pointer) for pointer in args[1:])
    store(m, args[0], [m.arith.add(left, right) for left, right in zip(x, y, strict=True)])


def _sub(m: Machine, *args: Any) -> None:
    x, y = (load(m, pointer) for pointer in args[1:])
    store(m, args[0], [m.arith.sub(left, right) for left, right in zip(x, y, strict=True)])


def _neg(m: Machine, *args: Any) -> None:
    store(m, args[0], [m.arith.neg(part) for part in load(m, args[1])])


def _copy(m: Machine, *args: Any) -> None:
    store(m, args[0], load(m, args[1]))


def _canonical(m: Machine, *args: Any) -> None:
    store(m, args[0], [m.arith.canonical(part) for part in load(m, args[1])])


def _select(m: Machine, target: Any, yes: Any, no: Any, bits: Any) -> None:
    mask = m.arith.mask_operand(bits)
    pairs = zip(load(m, yes), load(m, no), strict=True)
    store(m, target, [m.arith.select(mask, left, right) for left, right in pairs])


def _is_zero(m: Machine, *args: Any) -> None:
    m.builder.ret(m.arith.mask_result(m.arith.is_zero(load(m, args[0]))))


def _equal(m: Machine, *args: Any) -> None:
    x, y = (load(m, pointer) for pointer in args)
    m.builder.ret(m.arith.mask_result(m.arith.equal(x, y)))


def _reduced(m: Machine, words: Any) -> None:
    """Whether every coefficient of a canonical element is below p."""
    b, field = m.builder, m.kind.field
    verdict: Any = None
    for c in range(m.kind.degree):
        limbs = []
        for i in range(field.limbs):
            word = b.load(b.gep(words, [ir.Constant(I64, c * field.limbs + i)]))
            word.align = 1
            limbs.append(word)
        mine = is_reduced(b, field, limbs)
        verdict = mine if verdict is None else b.and_(verdict, mine)
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
        Operation("canonical", _canonical, (1, 1)),
        Operation("select", _select, (1, 1, 1), integers=1),
        Operation("is_zero", _is_zero, (1,), returns_mask=True),
        Operation("equal", _equal, (1, 1), returns_mask=True),
        Operation("reduced", _reduced, (WORDS,), returns_bool=True),
    )
}
