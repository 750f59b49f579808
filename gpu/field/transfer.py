"""Bodies that move elements between the forms they are kept in: canonical words (files, witnesses), rows
(points that are gathered and scattered) and what the arithmetic works on (elements, or blocks of eight).

With one lane all three are the same 64-bit words and each of these is a copy.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpu.field import vector as v
from gpu.field.bodies import Parts, load, store
from gpu.field.kinds import DIGIT_BITS, LANES
from gpu.field.limbs import I64
from gpu.field.lowering import I32, REFS, ROWS, WORDS, Machine, Operation


def _step(m: Machine, pointer: Any, count: Any, words: int) -> Any:
    """The pointer `count` (an i64 or int) times `words` further."""
    distance = ir.Constant(I64, count * words) if isinstance(count, int) else m.builder.mul(count, I64(words))
    return m.builder.gep(pointer, [distance])


def _read_words(m: Machine, words: Any, stride: Any) -> Parts:
    """Canonical elements at words[l * stride] for each lane l, as values, their bits unchanged."""
    if m.kind.lanes == 1:
        return load(m, words)
    n, degree = m.kind.field.limbs, m.kind.degree
    lanes = [_step(m, words, m.builder.mul(stride, I64(lane)), degree * n) for lane in range(LANES)]
    parts = []
    for c in range(degree):
        columns = v.transpose(m.builder, [v.load_words(m.builder, _step(m, lane, c, n), n) for lane in lanes])
        parts.append(m.arith.below_p(regroup(m, columns[:n], 64, DIGIT_BITS, m.kind.limbs)))
    return parts


def _write_words(m: Machine, words: Any, parts: Parts, stride: Any) -> None:
    """The reverse: each value mod p, its bits otherwise unchanged."""
    if m.kind.lanes == 1:
        store(m, words, parts)
        return
    n, degree = m.kind.field.limbs, m.kind.degree
    rows = []
    for part in parts:
        columns = regroup(m, list(m.arith.canonical(part).limbs), DIGIT_BITS, 64, n)
        rows.append(v.transpose(m.builder, columns + [v.ZERO] * (LANES - n)))
    for lane in range(LANES):
        target = _step(m, words, m.builder.mul(stride, I64(lane)), degree * n)
        for c in range(degree):
            v.store_words(m.builder, rows[c][lane], _step(m, target, c, n), n)


def regroup(m: Machine, digits: list[Any], have: int, want: int, count: int) -> list[Any]:
    """Digits of `have` bits as `count` digits of `want` bits."""
    b, out = m.builder, []
    for k in range(count):
        total = None
        for j, digit in enumerate(digits):
            shift = have * j - want * k
            if -have < shift < want:
                moved = b.shl(digit, v.splat(shift)) if shift > 0 else digit
                moved = b.lshr(digit, v.splat(-shift)) if shift < 0 else moved
                total = moved if total is None else b.or_(total, moved)
        total = v.ZERO if total is None else total
        out.append(b.and_(total, v.splat((1 << want) - 1)) if want < 64 else total)
    return out


def _scaled(m: Machine, parts: Parts, factor: int) -> Parts:
    """Montgomery products with a number below p; with one lane both forms have the same R."""
    return parts if m.kind.lanes == 1 else [m.arith.mul(part, m.arith.constant(factor)) for part in parts]


def _split_words(m: Machine, target: Any, words: Any, stride: Any) -> None:
    store(m, target, _read_words(m, words, stride))


def _join_words(m: Machine, words: Any, source: Any, stride: Any) -> None:
    _write_words(m, words, load(m, source), stride)


def _from_words(m: Machine, target: Any, words: Any, stride: Any) -> None:
    field = m.kind.field
    factor = (1 << (2 * DIGIT_BITS * m.kind.limbs)) * field.r_inverse % field.modulus
    store(m, target, _scaled(m, _read_words(m, words, stride), factor))


def _to_words(m: Machine, words: Any, source: Any, stride: Any) -> None:
    _write_words(m, words, _scaled(m, load(m, source), m.kind.field.r), stride)


def _read_rows(m: Machine, lanes: list[Any]) -> Parts:
    """The rows at eight pointers (or one)."""
    if m.kind.lanes == 1:
        return load(m, lanes[0])
    parts = []
    for c in range(m.kind.degree):
        columns = v.transpose(m.builder, [v.load(m.builder, lane, c) for lane in lanes])
        parts.append(m.arith.stored(columns[: m.kind.limbs]))
    return parts


def _write_rows(m: Machine, lanes: list[Any], parts: Parts) -> None:
    if m.kind.lanes == 1:
        store(m, lanes[0], parts)
        return
    for c, part in enumerate(parts):
        limbs = list(m.arith.fit(part).limbs)
        rows = v.transpose(m.builder, limbs + [v.ZERO] * (LANES - len(limbs)))
        for lane, row in zip(lanes, rows, strict=True):
            v.store(m.builder, row, lane, c)


def _strided(m: Machine, rows: Any, stride: Any) -> list[Any]:
    return [_step(m, rows, m.builder.mul(stride, I64(lane)), m.kind.row_words) for lane in range(m.kind.lanes)]


def _referred(m: Machine, rows: Any, refs: Any, stride: Any) -> list[Any]:
    """A pointer for each reference."""
    b, out = m.builder, []
    for lane in range(m.kind.lanes):
        ref = b.load(b.gep(refs, [I64(lane)]))
        ref.align = 4
        out.append(_step(m, rows, b.mul(b.zext(b.lshr(ref, I32(1)), I64), stride), m.kind.row_words))
    return out


def _signs(m: Machine, refs: Any) -> Any:
    """The mask of the references to negatives."""
    b = m.builder
    if m.kind.lanes == 1:
        ref = b.load(refs)
        ref.align = 4
        return b.trunc(ref, ir.IntType(1))
    kind = ir.VectorType(I32, LANES)
    all_refs = b.load(b.bitcast(refs, kind.as_pointer()))
    all_refs.align = 4
    return b.trunc(all_refs, v.MASK)


def _to_rows(m: Machine, rows: Any, source: Any, stride: Any) -> None:
    _write_rows(m, _strided(m, rows, stride), load(m, source))


def _gather_signed(m: Machine, target: Any, rows: Any, refs: Any, stride: Any) -> None:
    parts, signs = _read_rows(m, _referred(m, rows, refs, stride)), _signs(m, refs)
    store(m, target, [m.arith.select(signs, m.arith.neg(part), part) for part in parts])


def ask_for(b: ir.IRBuilder, addresses: list[Any]) -> None:
    """Prefetches: reads, to be kept close, of data."""
    pointer_type = ir.IntType(8).as_pointer()
    name = "llvm.prefetch.p0"
    function = b.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(ir.VoidType(), [pointer_type, I32, I32, I32])
        function = ir.Function(b.module, kind, name)
    for address in addresses:
        b.call(function, [b.bitcast(address, pointer_type), I32(0), I32(3), I32(1)])


def _prefetch_one(m: Machine, element: Any) -> None:
    ask_for(m.builder, [element, m.builder.gep(element, [I64(m.kind.words - 1)])])


SPLIT_WORDS = Operation("split_words", _split_words, (1, WORDS), integers=1)
JOIN_WORDS = Operation("join_words", _join_words, (WORDS, 1), integers=1)
FROM_WORDS = Operation("from_words", _from_words, (1, WORDS), integers=1)
TO_WORDS = Operation("to_words", _to_words, (WORDS, 1), integers=1)
TO_ROWS = Operation("to_rows", _to_rows, (ROWS, 1), integers=1)
GATHER_SIGNED = Operation("gather_signed", _gather_signed, (1, ROWS, REFS), integers=1)
PREFETCH_ONE = Operation("prefetch_one", _prefetch_one, (1,))
