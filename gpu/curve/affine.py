"""Additions of affine points that share one inversion, step by step, for one pair at a time or for eight.

A reference is an int64: twice the address of a point in `.zkey` form (two reduced elements, any alignment), plus one
to take its negative. So one kernel adds points of a mapped key, of buckets and of its own scratch in any mixture.
Operands are (array, index) as in `gpu.field.scalar`; those written `refs` are int64 arrays of references, of which an
operation with 8 lanes takes eight.

open_pair(F, d, i, n, j, x1, k, y1, o, x2, m, left, p, right, q) -> mask
    reads the points P1 of left[p] and P2 of right[q]: d = x2 - x1, n = y2 - y1; the mask tells where x1 = x2 or one of
    both is zero, which are the pairs that need another treatment
close_pair(F, x1, i, y1, j, x2, k, n, l, inverse, m, out, p)
    writes P1 + P2 to out[p], the slope being n * inverse
tangent(F, n, i, x1, j)       n = 3 x1^2: what takes the place of y2 - y1 where P1 = P2
copy_point(F, out, p, source, q)    scalar fields only: the point of source[q] to out[p]
prefetch(reference)           asks the cache for the first line of a point

Blocks of eight keep the Montgomery factor R = 2^(64 n) of the file, although their products divide by
R' = 2^(52 L) = 4^s R. With `numerator` in place of one in the inversion a slope comes out times sqrt(R R'), its square
right, and its product with x1 - x3 too small by 2^s, which is a shift: no point is ever converted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llvmlite import ir
from numba import types

from gpu.field import vector
from gpu.field.bodies import OPERATIONS, Parts, load, product, store
from gpu.field.compiled import intrinsic
from gpu.field.kinds import DIGIT_BITS, LANES, KernelField, kernel_field
from gpu.field.limbs import I64
from gpu.field.lowering import I32, SINGLE, Machine, Operation, operation
from gpu.field.transfer import JOIN_WORDS, SPLIT_WORDS, regroup

_I8_POINTER = ir.IntType(8).as_pointer()


def numerator(kind: KernelField) -> int:
    """What the inverse of d is to be a multiple of: R' sqrt(R R'), which is R^2 with one lane."""
    own, filed = _radix_bits(kind)
    return 1 << (own + (own + filed) // 2)


def _radix_bits(kind: KernelField) -> tuple[int, int]:
    """Of R' and R."""
    return (64 if kind.lanes == 1 else DIGIT_BITS) * kind.limbs, 64 * kind.field.limbs


def _pointers(m: Machine, refs: Any) -> tuple[list[Any], Any]:
    """A pointer for each lane, and the mask of negatives."""
    b, pointers, signs = m.builder, [], []
    for lane in range(m.kind.lanes):
        ref = b.load(b.gep(refs, [I64(lane)]))
        pointers.append(b.inttoptr(b.lshr(ref, I64(1)), I64.as_pointer()))
        signs.append(b.trunc(ref, ir.IntType(1)))
    if m.kind.lanes == 1:
        return pointers, signs[0]
    mask = vector.MASK(ir.Undefined)
    for lane, sign in enumerate(signs):
        mask = b.insert_element(mask, sign, I32(lane))
    return pointers, mask


def _read(m: Machine, refs: Any) -> tuple[Parts, Parts]:
    """The points of one or eight references, reduced."""
    pointers, signs = _pointers(m, refs)
    degree, a = m.kind.degree, m.arith
    if m.kind.lanes == 1:
        parts = load(m, pointers[0]) + load(m, m.element(pointers[0], 1))
    else:
        n, columns = m.kind.field.limbs, []
        for first in range(0, 2 * degree * n, LANES):
            count = min(LANES, 2 * degree * n - first)
            rows = [_load_words(m, m.builder.gep(pointer, [I64(first)]), count) for pointer in pointers]
            columns += vector.transpose(m.builder, rows)[:count]
        parts = [
            a.below_p(regroup(m, columns[i : i + n], 64, DIGIT_BITS, m.kind.limbs)) for i in range(0, len(columns), n)
        ]
    x, y = parts[:degree], parts[degree:]
    return x, [a.select(signs, a.canonical(a.neg(part)), part) for part in y]


def _load_words(m: Machine, pointer: Any, count: int) -> Any:
    """Eight words, or four and four of no meaning, from any address."""
    if count < LANES:
        return vector.load_words(m.builder, pointer, count)
    row = m.builder.load(m.builder.bitcast(pointer, vector.VECTOR.as_pointer()))
    row.align = 1
    return row


def _write(m: Machine, refs: Any, parts: Parts) -> None:
    """Coordinates (x, then y) to where one or eight references point; their signs must be zero."""
    pointers, _ = _pointers(m, refs)
    if m.kind.lanes == 1:
        store(m, pointers[0], parts[: m.kind.degree])
        store(m, m.element(pointers[0], 1), parts[m.kind.degree :])
        return
    n, columns = m.kind.field.limbs, []
    for part in parts:
        columns += regroup(m, list(m.arith.canonical(part).limbs), DIGIT_BITS, 64, n)
    for first in range(0, len(columns), LANES):
        chosen = columns[first : first + LANES]
        rows = vector.transpose(m.builder, chosen + [vector.ZERO] * (LANES - len(chosen)))
        for pointer, row in zip(pointers, rows, strict=True):
            target = m.builder.gep(pointer, [I64(first)])
            if len(chosen) < LANES:
                vector.store_words(m.builder, row, target, len(chosen))
            else:
                m.builder.store(row, m.builder.bitcast(target, vector.VECTOR.as_pointer())).align = 1


def _raised(m: Machine, part: Any) -> Any:
    """part times 2^s = sqrt(R'/R) as a factor of a product: far from reduced."""
    own, filed = _radix_bits(m.kind)
    s = (own - filed) // 2
    b, part = m.builder, m.arith.normal(part)
    mask, limbs, below = vector.splat(vector.DIGIT), [], vector.ZERO
    for limb in part.limbs:
        limbs.append(b.or_(b.and_(b.shl(limb, vector.splat(s)), mask), below))
        below = b.lshr(limb, vector.splat(DIGIT_BITS - s))
    return replace(part, limbs=tuple(limbs), low=part.low * 2**s, high=part.high * 2**s)


def _open_pair(m: Machine, d: Any, n: Any, x1: Any, y1: Any, x2: Any, left: Any, right: Any, special: Any) -> None:
    a, b = m.arith, m.builder
    (px, py), (qx, qy) = _read(m, left), _read(m, right)
    store(m, d, [a.sub(q, p) for p, q in zip(px, qx, strict=True)])
    store(m, n, [a.sub(q, p) for p, q in zip(py, qy, strict=True)])
    store(m, x1, px)
    store(m, y1, py)
    store(m, x2, qx)
    b.store(I64(0), special)
    unusual = _bits(m, b.or_(a.equal(px, qx), b.or_(a.is_zero(px), a.is_zero(qx))))
    with b.if_then(b.icmp_unsigned("!=", unusual, I64(0)), likely=False):
        m.call(TREAT, d, n, x1, y1, x2, special)


def _treat(m: Machine, d: Any, n: Any, x1: Any, y1: Any, x2: Any, special: Any) -> None:
    """Where points are equal, the tangent's slope; where the sum is no quotient, d = 1."""
    a, b = m.arith, m.builder
    (tangent,) = m.temporaries(1)
    m.call(OPERATIONS["sqr"], tangent, x1)
    own, filed = _radix_bits(m.kind)
    squares = load(m, tangent)
    if own != filed:
        squares = [a.mul(part, a.constant(2 ** (2 * own - filed) % m.kind.field.modulus)) for part in squares]
    tangents = [a.add(a.add(part, part), part) for part in squares]
    y1_parts, n_parts, d_parts = load(m, y1), load(m, n), load(m, d)
    flat = a.is_zero(y1_parts)
    infinite1 = b.and_(a.is_zero(load(m, x1)), flat)
    infinite2 = b.and_(a.is_zero(load(m, x2)), a.equal(y1_parts, [a.neg(part) for part in n_parts]))
    same = b.and_(a.is_zero(d_parts), b.not_(b.or_(infinite1, infinite2)))
    double = b.and_(same, b.and_(a.is_zero(n_parts), b.not_(flat)))
    neither = b.and_(same, b.not_(double))
    trivial = b.or_(neither, b.or_(infinite1, infinite2))
    one = [a.constant(m.kind.r), *[a.constant(0)] * (m.kind.degree - 1)]
    store(m, n, [a.select(double, p, q) for p, q in zip(tangents, n_parts, strict=True)])
    divisors = [a.select(double, a.add(y, y), q) for y, q in zip(y1_parts, d_parts, strict=True)]
    store(m, d, [a.select(trivial, p, q) for p, q in zip(one, divisors, strict=True)])
    code = _bits(m, infinite2)  # the sum is P1
    code = b.or_(code, b.shl(_bits(m, infinite1), I64(8)))  # the sum is P2
    b.store(b.or_(code, b.shl(_bits(m, neither), I64(16))), special)  # the sum is infinity


def _close_pair(m: Machine, x1: Any, y1: Any, x2: Any, n: Any, inverse: Any, special: Any, out: Any) -> None:
    a, b = m.arith, m.builder
    slope, other = m.temporaries(2)
    m.call(OPERATIONS["mul"], slope, n, inverse)
    m.call(OPERATIONS["sqr"], other, slope)
    left, right = load(m, x1), load(m, x2)
    sums = [a.add(p, q) for p, q in zip(left, right, strict=True)]
    x3 = [a.canonical(a.sub(square, total)) for square, total in zip(load(m, other), sums, strict=True)]
    falls = [a.sub(p, q) for p, q in zip(left, x3, strict=True)]
    if m.kind.lanes == 1:
        store(m, other, falls)
        m.call(OPERATIONS["mul"], other, other, slope)
        rises = load(m, other)
    else:
        rises = product(a, [_raised(m, part) for part in falls], load(m, slope))
    y3 = [a.sub(rise, p) for rise, p in zip(rises, load(m, y1), strict=True)]
    _write(m, out, x3 + y3)
    code = b.load(special)
    with b.if_then(b.icmp_unsigned("!=", code, I64(0)), likely=False):
        m.call(REPAIR, x1, y1, x2, n, special, out)


def _repair(m: Machine, x1: Any, y1: Any, x2: Any, n: Any, special: Any, out: Any) -> None:
    """Overwrites the sums that are P1, P2 or infinity."""
    a, b = m.arith, m.builder
    code = b.load(special)
    first, second, neither = (a.mask_operand(b.lshr(code, I64(shift))) for shift in (0, 8, 16))
    x, y = _read(m, out)
    y1_parts = load(m, y1)
    y2 = [a.add(p, q) for p, q in zip(y1_parts, load(m, n), strict=True)]
    parts = []
    choices = (x + y, load(m, x1) + y1_parts, load(m, x2) + y2)
    for part, p, q in zip(*choices, strict=True):
        part = a.select(first, p, a.select(second, q, part))
        parts.append(a.select(neither, a.constant(0), part))
    _write(m, out, parts)


def _bits(m: Machine, mask: Any) -> Any:
    """A mask as an i64."""
    return m.builder.zext(mask, I64) if m.kind.lanes == 1 else vector.mask_bits(m.builder, mask)


def _invert(m: Machine, target: Any, source: Any, known: Any, function: Any) -> None:
    """Lanes are multiplied up to one element, that is inverted, and its parts are found again backwards."""
    b, kind = m.builder, m.kind
    one = Machine(b, kernel_field(kind.field, kind.degree))
    base = Machine(b, kernel_field(kind.field))
    mul = OPERATIONS["mul"]
    words = b.bitcast(b.alloca(ir.ArrayType(I64, kind.lanes * one.kind.words)), I64.as_pointer())
    products = one.temporaries(kind.lanes)
    (t,) = one.temporaries(1)
    m.call(JOIN_WORDS, words, source, I64(1))
    values = [one.element(words, lane) for lane in range(kind.lanes)]
    one.call(OPERATIONS["copy"], products[0], values[0])
    for lane in range(1, kind.lanes):
        one.call(mul, products[lane], products[lane - 1], values[lane])
    last = products[-1]
    kernel = ir.FunctionType(ir.VoidType(), [I64.as_pointer()] * 2)
    call = b.inttoptr(function, kernel.as_pointer())
    if kind.degree == 1:
        b.call(call, [last, known])
    else:
        # 1/(a + b u) = (a - b u) / (a^2 + b^2)
        real, imaginary, norm, more = last, base.element(last, 1), t, base.element(t, 1)
        base.call(OPERATIONS["sqr"], norm, real)
        base.call(OPERATIONS["sqr"], more, imaginary)
        base.call(OPERATIONS["add"], norm, norm, more)
        b.call(call, [norm, known])
        base.call(mul, real, real, norm)
        base.call(mul, imaginary, imaginary, norm)
        base.call(OPERATIONS["neg"], imaginary, imaginary)
    for lane in range(kind.lanes - 1, 0, -1):
        one.call(mul, t, last, values[lane])
        one.call(mul, values[lane], last, products[lane - 1])
        one.call(OPERATIONS["copy"], last, t)
    one.call(OPERATIONS["copy"], values[0], last)
    m.call(SPLIT_WORDS, target, words, I64(1))


def _copy_point(m: Machine, out: Any, source: Any) -> None:
    one = Machine(m.builder, kernel_field(m.kind.field, m.kind.degree))
    x, y = _read(one, source)
    _write(one, out, x + y)


OPEN = Operation("open_pair", _open_pair, (1, 1, 1, 1, 1, SINGLE, SINGLE, SINGLE))
TREAT = Operation("treat_pair", _treat, (1, 1, 1, 1, 1, 1))
CLOSE = Operation("close_pair", _close_pair, (1, 1, 1, 1, 1, SINGLE, SINGLE))
REPAIR = Operation("repair_pair", _repair, (1, 1, 1, 1, SINGLE, SINGLE))
INVERT = Operation("invert_all", _invert, (1, 1, SINGLE), integers=1)
COPY = Operation("copy_point", _copy_point, (SINGLE, SINGLE))


@intrinsic
def open_pair(typingctx, field, d, i, n, j, x1, k, y1, o, x2, m, left, p, right, q, special, r):
    return operation(OPEN, field, d, i, n, j, x1, k, y1, o, x2, m, left, p, right, q, special, r)


@intrinsic
def close_pair(typingctx, field, x1, i, y1, j, x2, k, n, o, inverse, m, special, r, out, p):
    return operation(CLOSE, field, x1, i, y1, j, x2, k, n, o, inverse, m, special, r, out, p)


@intrinsic
def invert_all(typingctx, field, d, i, a, j, known, k, function):
    return operation(INVERT, field, d, i, a, j, known, k, function)


@intrinsic
def copy_point(typingctx, field, out, p, source, q):
    return operation(COPY, field, out, p, source, q)


@intrinsic
def prefetch(typingctx, reference):
    """The first line of the point of a reference; a hint that can't fault."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        address = builder.inttoptr(builder.lshr(args[0], I64(1)), _I8_POINTER)
        name = "llvm.prefetch.p0"
        hint = builder.module.globals.get(name)
        if hint is None:
            hint = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [_I8_POINTER, I32, I32, I32]), name)
        builder.call(hint, [address, I32(0), I32(3), I32(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate
