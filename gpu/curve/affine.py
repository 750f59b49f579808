"""Additions of affine points that share one inversion, step by step, for one pair at a time or for eight.

A reference is an int64: twice the address of a point in `.zkey` form (two reduced elements, any alignment), plus one
to take its negative. So one kernel adds points of a mapped key, of buckets and of its own scratch in any mixture.
Operands are (array, index) as in `gpu.field.operations`; those written `refs` are int64 arrays of references, of which
an operation with 8 lanes takes eight.

open_pair(F, d, i, left, p, right, q, special, r)
    d = x2 - x1 for the points P1 of left[p] and P2 of right[q]; special[r] is not zero where the sum needs more care
    than close_pair's usual course, and d is then what close_pair needs
close_pair(F, inverse, i, left, p, right, q, special, r, out, s)
    writes P1 + P2 to out[s], given the inverse of d. Both read the points: that costs less than keeping them
invert_all(F, d, i, a, j, known, 0, function)
    d[i] = `numerator` / a[j] in each lane, by `gpu.msm.inverse`
copy_point(F, out, p, source, q)
    the one point of source[q] to out[p], whatever the lanes
prefetch(F, reference)
    asks the cache for the lines of a point; a hint that can't fault

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
from gpu.field.kinds import DIGIT_BITS, LANES, KernelField, kernel_field, of_marker_length
from gpu.field.limbs import I64
from gpu.field.lowering import I32, SINGLE, Machine, Operation, operation
from gpu.field.transfer import JOIN_WORDS, SPLIT_WORDS, ask_for, regroup

_I8_POINTER = ir.IntType(8).as_pointer()
_LINE_BYTES = 64


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


def _coordinates(m: Machine, pointers: list[Any], first: int, count: int) -> Parts:
    """`count` coefficients of each point, from the one numbered `first` on, reduced."""
    if m.kind.lanes == 1:
        degree = m.kind.degree
        elements = range(first // degree, (first + count) // degree)
        return [part for k in elements for part in load(m, m.element(pointers[0], k))]
    n, columns = m.kind.field.limbs, []
    for word in range(first * n, (first + count) * n, LANES):
        size = min(LANES, (first + count) * n - word)
        rows = [_load_words(m, m.builder.gep(pointer, [I64(word)]), size) for pointer in pointers]
        columns += vector.transpose(m.builder, rows)[:size]
    groups = (columns[i : i + n] for i in range(0, len(columns), n))
    return [m.arith.below_p(regroup(m, group, 64, DIGIT_BITS, m.kind.limbs)) for group in groups]


def _read(m: Machine, refs: Any) -> tuple[Parts, Parts]:
    """The points of one or eight references, reduced."""
    pointers, signs = _pointers(m, refs)
    degree, a = m.kind.degree, m.arith
    parts = _coordinates(m, pointers, 0, 2 * degree)
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


def _open_pair(m: Machine, d: Any, left: Any, right: Any, special: Any) -> None:
    a, b = m.arith, m.builder
    x1, x2 = (_coordinates(m, _pointers(m, refs)[0], 0, m.kind.degree) for refs in (left, right))
    store(m, d, [a.sub(q, p) for p, q in zip(x1, x2, strict=True)])
    b.store(I64(0), special)
    unusual = _bits(m, b.or_(a.is_zero(load(m, d)), b.or_(a.is_zero(x1), a.is_zero(x2))))
    with b.if_then(b.icmp_unsigned("!=", unusual, I64(0)), likely=False):
        m.call(TREAT, d, left, right, special)


_CASES = ("double", "first", "second", "neither")
"""What `special` says of a lane: P1 = P2, or the sum is P1, P2 or infinity; eight bits each, lowest first."""


def _treat(m: Machine, d: Any, left: Any, right: Any, special: Any) -> None:
    """Finds the cases. The divisor becomes 2 y1 for equal points, 1 where the sum is no quotient."""
    a, b = m.arith, m.builder
    (x1, y1), (x2, y2) = _read(m, left), _read(m, right)
    flat = a.is_zero(y1)
    infinite1, infinite2 = b.and_(a.is_zero(x1), flat), b.and_(a.is_zero(x2), a.is_zero(y2))
    divisors = load(m, d)
    same = b.and_(a.is_zero(divisors), b.not_(b.or_(infinite1, infinite2)))
    double = b.and_(same, b.and_(a.equal(y1, y2), b.not_(flat)))
    neither = b.and_(same, b.not_(double))
    trivial = b.or_(neither, b.or_(infinite1, infinite2))
    one = [a.constant(m.kind.r), *[a.constant(0)] * (m.kind.degree - 1)]
    divisors = [a.select(double, a.add(y, y), part) for y, part in zip(y1, divisors, strict=True)]
    store(m, d, [a.select(trivial, p, q) for p, q in zip(one, divisors, strict=True)])
    code = I64(0)
    for k, mask in enumerate((double, infinite2, infinite1, neither)):
        code = b.or_(code, b.shl(_bits(m, mask), I64(8 * k)))
    b.store(code, special)


def _close_pair(m: Machine, inverse: Any, left: Any, right: Any, special: Any, out: Any) -> None:
    a, b = m.arith, m.builder
    slope, other = m.temporaries(2)
    (x1, y1), (x2, y2) = _read(m, left), _read(m, right)
    store(m, slope, [a.sub(q, p) for p, q in zip(y1, y2, strict=True)])
    usual = b.icmp_unsigned("==", b.load(special), I64(0))
    with b.if_then(b.not_(usual), likely=False):
        m.call(TANGENT, slope, left, special)
    m.call(OPERATIONS["mul"], slope, slope, inverse)
    m.call(OPERATIONS["sqr"], other, slope)
    sums = [a.add(p, q) for p, q in zip(x1, x2, strict=True)]
    x3 = [a.canonical(a.sub(square, total)) for square, total in zip(load(m, other), sums, strict=True)]
    falls = [a.sub(p, q) for p, q in zip(x1, x3, strict=True)]
    if m.kind.lanes == 1:
        store(m, other, falls)
        m.call(OPERATIONS["mul"], other, other, slope)
        rises = load(m, other)
    else:
        rises = product(a, [_raised(m, part) for part in falls], load(m, slope))
    y3 = [a.sub(rise, p) for rise, p in zip(rises, y1, strict=True)]
    with b.if_else(usual, likely=True) as (written, repaired):
        with written:
            _write(m, out, x3 + y3)
        with repaired:
            store(m, slope, x3)
            store(m, other, y3)
            m.call(REPAIR, slope, other, left, right, special, out)


def _tangent(m: Machine, n: Any, left: Any, special: Any) -> None:
    """n = 3 x1^2 in place of y2 - y1 where P1 = P2."""
    a = m.arith
    (square,) = m.temporaries(1)
    x1 = _coordinates(m, _pointers(m, left)[0], 0, m.kind.degree)
    store(m, square, x1)
    m.call(OPERATIONS["sqr"], square, square)
    squares = load(m, square)
    own, filed = _radix_bits(m.kind)
    if own != filed:
        squares = [a.mul(part, a.constant(2 ** (2 * own - filed) % m.kind.field.modulus)) for part in squares]
    double = _case(m, special, "double")
    thrice = [a.add(a.add(part, part), part) for part in squares]
    store(m, n, [a.select(double, p, q) for p, q in zip(thrice, load(m, n), strict=True)])


def _repair(m: Machine, x3: Any, y3: Any, left: Any, right: Any, special: Any, out: Any) -> None:
    """Writes the sums (x3, y3), but P1, P2 or infinity where the sum is that."""
    a = m.arith
    first, second, neither = (_case(m, special, name) for name in _CASES[1:])
    (x1, y1), (x2, y2) = _read(m, left), _read(m, right)
    parts = []
    for part, p, q in zip(load(m, x3) + load(m, y3), x1 + y1, x2 + y2, strict=True):
        chosen = a.select(first, p, a.select(second, q, part))
        parts.append(a.select(neither, a.constant(0), chosen))
    _write(m, out, parts)


def _case(m: Machine, special: Any, name: str) -> Any:
    shift = I64(8 * _CASES.index(name))
    return m.arith.mask_operand(m.builder.lshr(m.builder.load(special), shift))


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


OPEN = Operation("open_pair", _open_pair, (1, SINGLE, SINGLE, SINGLE))
TREAT = Operation("treat_pair", _treat, (1, SINGLE, SINGLE, SINGLE))
CLOSE = Operation("close_pair", _close_pair, (1, SINGLE, SINGLE, SINGLE, SINGLE))
TANGENT = Operation("tangent_of_pair", _tangent, (1, SINGLE, SINGLE))
REPAIR = Operation("repair_pair", _repair, (1, 1, SINGLE, SINGLE, SINGLE, SINGLE))
INVERT = Operation("invert_all", _invert, (1, 1, SINGLE), integers=1)
COPY = Operation("copy_point", _copy_point, (SINGLE, SINGLE))


@intrinsic
def open_pair(typingctx, field, d, i, left, p, right, q, special, r):
    return operation(OPEN, field, d, i, left, p, right, q, special, r)


@intrinsic
def close_pair(typingctx, field, inverse, i, left, p, right, q, special, r, out, s):
    return operation(CLOSE, field, inverse, i, left, p, right, q, special, r, out, s)


@intrinsic
def invert_all(typingctx, field, d, i, a, j, known, k, function):
    return operation(INVERT, field, d, i, a, j, known, k, function)


@intrinsic
def copy_point(typingctx, field, out, p, source, q):
    return operation(COPY, field, out, p, source, q)


@intrinsic
def prefetch(typingctx, field, reference):
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        kind = of_marker_length(signature.args[0].count)
        pointer = builder.inttoptr(builder.lshr(args[1], I64(1)), _I8_POINTER)
        size = 16 * kind.degree * kind.field.limbs
        ask_for(builder, [builder.gep(pointer, [I64(byte)]) for byte in (*range(0, size, _LINE_BYTES), size - 1)])
        return context.get_dummy_value()

    return types.void(field, types.int64), generate
