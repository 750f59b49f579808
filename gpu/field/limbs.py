"""Emitters: field operations on lists of 64-bit limbs as LLVM IR, for any odd prime with a spare top bit.

Each takes an IRBuilder and lists of i64 values (little-endian limbs, reduced) and returns such a list.
Nothing here knows numba or arrays; `Arithmetic` gives them the shape that the vector back end shares, and
`bodies` makes them functions on pointers. Multiplication is
Montgomery's in CIOS form (Koc, Acar, Kaliski, "Analyzing and comparing Montgomery multiplication algorithms",
1996) without the carry limb, which the spare top bit makes unnecessary (Botrel, El Housni, "Faster Montgomery
multiplication", 2022).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpu.field import adx, isa
from gpu.field.params import Field

I64 = ir.IntType(64)
I128 = ir.IntType(128)
Limbs = list[Any]


class Arithmetic:
    """The emitters for one field, under the names that `ifma.Arithmetic` has too. A value is a list of limbs,
    reduced but for `add_lazily`; a mask is an i1.
    """

    def __init__(self, builder: ir.IRBuilder, kind: Any) -> None:
        self.b = builder
        self.kind = kind

    def load(self, pointer: Any) -> list[Limbs]:
        """The coefficients of an element."""
        n, words = self.kind.limbs, self._words(pointer, self.kind.words)
        return [words[i : i + n] for i in range(0, len(words), n)]

    def store(self, pointer: Any, parts: list[Limbs]) -> None:
        """Writes an element."""
        for i, limb in enumerate([limb for part in parts for limb in part]):
            self.b.store(limb, self.b.gep(pointer, [ir.Constant(I64, i)])).align = 1

    def constant(self, value: int) -> Limbs:
        """A number below p, as it stands."""
        return constants(value, self.kind.limbs)

    def mul(self, x: Limbs, y: Limbs) -> Limbs:
        if not isa.adx():
            return mul(self.b, self.kind.field, x, y)
        return self.product_of(self._in_memory(x), self._in_memory(y))

    def sqr(self, x: Limbs) -> Limbs:
        if not isa.adx():
            return mul(self.b, self.kind.field, x, x)
        place = self._in_memory(x)
        return self.product_of(place, place)

    def product_of(self, x: Any, y: Any) -> Limbs:
        """The product of two elements of the prime field in memory: what assembly takes at once."""
        b, field = self.b, self.kind.field
        if not isa.adx():
            return self.mul(self.coefficient(x), self.coefficient(y))
        return split(b, _reduce_once(b, field, join(b, adx.montgomery(b, field, x, y))), field.limbs)

    def coefficient(self, pointer: Any) -> Limbs:
        """One element of the prime field."""
        return self._words(pointer, self.kind.limbs)

    def _words(self, pointer: Any, count: int) -> Limbs:
        words = []
        for i in range(count):
            word = self.b.load(self.b.gep(pointer, [ir.Constant(I64, i)]))
            word.align = 1  # sections of a mapped file start anywhere
            words.append(word)
        return words

    def _in_memory(self, x: Limbs) -> Any:
        """A pointer to a copy of x."""
        with self.b.goto_entry_block():
            place = self.b.bitcast(self.b.alloca(ir.ArrayType(I64, len(x))), I64.as_pointer())
        for i, limb in enumerate(x):
            self.b.store(limb, self.b.gep(place, [ir.Constant(I64, i)]))
        return place

    def add(self, x: Limbs, y: Limbs) -> Limbs:
        return add(self.b, self.kind.field, x, y)

    def add_lazily(self, x: Limbs, y: Limbs) -> Limbs:
        return add_lazily(self.b, x, y)

    def sub(self, x: Limbs, y: Limbs) -> Limbs:
        return sub(self.b, self.kind.field, x, y)

    def neg(self, x: Limbs) -> Limbs:
        return sub(self.b, self.kind.field, self.constant(0), x)

    def canonical(self, x: Limbs) -> Limbs:
        """x itself: here every value is reduced."""
        return x

    def is_zero(self, parts: list[Limbs]) -> Any:
        return is_zero(self.b, [limb for part in parts for limb in part])

    def equal(self, x: list[Limbs], y: list[Limbs]) -> Any:
        return self.is_zero([[self.b.xor(i, j) for i, j in zip(*pair, strict=True)] for pair in zip(x, y, strict=True)])

    def select(self, mask: Any, x: Limbs, y: Limbs) -> Limbs:
        """x where the mask is set, else y."""
        return [self.b.select(mask, i, j) for i, j in zip(x, y, strict=True)]

    def mask_result(self, mask: Any) -> Any:
        """A mask as a kernel gets it: an i1."""
        return mask

    def mask_operand(self, bits: Any) -> Any:
        """A kernel's i64 as a mask."""
        return self.b.trunc(bits, ir.IntType(1))


class Lazy(Arithmetic):
    """Values below 2p instead of p, as the stages of a transform keep them: a product needs no last subtraction.
    Of two factors the second must be below p; then x y + m p < 2 p R.
    """

    def __init__(self, builder: ir.IRBuilder, kind: Any) -> None:
        super().__init__(builder, kind)
        self._double = 2 * kind.field.modulus

    def mul(self, x: Limbs, y: Any) -> Limbs:
        """x y / R. `y`: limbs, or a pointer to an element that nothing changes."""
        if not isa.adx():
            return _montgomery(self.b, self.kind.field, y if isinstance(y, list) else self.coefficient(y), x)
        place = self._in_memory(y) if isinstance(y, list) else y
        return adx.montgomery(self.b, self.kind.field, place, self._in_memory(x))

    def sqr(self, x: Limbs) -> Limbs:
        raise NotImplementedError("a lazy square may exceed 2p")

    def add(self, x: Limbs, y: Limbs) -> Limbs:
        b = self.b
        total, carry = _overflowing(b, "uadd", join(b, x), join(b, y))
        less, borrow = _overflowing(b, "usub", total, ir.Constant(total.type, self._double))
        if self._double * 2 >> total.type.width:  # the sum may not fit
            borrow = b.and_(borrow, b.not_(carry))
        return split(b, b.select(borrow, total, less), self.kind.limbs)

    def sub(self, x: Limbs, y: Limbs) -> Limbs:
        b = self.b
        less, borrow = _overflowing(b, "usub", join(b, x), join(b, y))
        repair = b.select(borrow, ir.Constant(less.type, self._double), ir.Constant(less.type, 0))
        return split(b, b.add(less, repair), self.kind.limbs)

    def divide(self, x: Limbs, k: Any) -> Limbs:
        """x / 2^k mod p, reduced, for a k (an i64) of 0..63: Montgomery's step for k bits."""
        b, field = self.b, self.kind.field
        mask = b.sub(b.shl(I64(1), k), I64(1))
        factor = b.and_(b.mul(x[0], I64(field.n0)), mask)
        carry, total = I64(0), []
        for limb, digit in zip(x, constants(field.modulus, self.kind.limbs), strict=True):
            low, carry = _mac(b, factor, digit, limb, carry)
            total.append(low)
        shift = _intrinsic(b, "llvm.fshr.i64", I64, [I64] * 3)
        pairs = zip(total, [*total[1:], carry], strict=True)
        shifted = [b.call(shift, [high, low, k]) for low, high in pairs]
        return split(b, _reduce_once(b, field, join(b, shifted)), self.kind.limbs)


def constants(value: int, limbs: int) -> Limbs:
    """`value` as limb constants."""
    return [ir.Constant(I64, value >> (64 * i) & (2**64 - 1)) for i in range(limbs)]


def mul(b: ir.IRBuilder, field: Field, x: Limbs, y: Limbs) -> Limbs:
    """x*y/R mod p, reduced. The operands may be up to 2p where 4p < R (then 4p/R + 1 < 2, and no carry
    limb).
    """
    return split(b, _reduce_once(b, field, join(b, _montgomery(b, field, x, y))), field.limbs)


def _montgomery(b: ir.IRBuilder, field: Field, x: Limbs, y: Limbs) -> Limbs:
    """x*y/R mod p, below x*y/R + p. Sums on the way are below x + p, which must fit the limbs."""
    if field.modulus >> (64 * field.limbs - 1):
        raise ValueError(f"{field.name} has no spare top bit")
    n = field.limbs
    modulus = constants(field.modulus, n)
    total: Limbs = constants(0, n)
    for row in y:
        carry = ir.Constant(I64, 0)
        for j in range(n):
            total[j], carry = _mac(b, x[j], row, total[j], carry)
        top = carry
        factor = b.mul(total[0], ir.Constant(I64, field.n0))
        _, carry = _mac(b, factor, modulus[0], total[0], ir.Constant(I64, 0))
        for j in range(1, n):
            total[j - 1], carry = _mac(b, factor, modulus[j], total[j], carry)
        total[n - 1] = b.add(top, carry)
    return total


def add(b: ir.IRBuilder, field: Field, x: Limbs, y: Limbs) -> Limbs:
    """x + y mod p."""
    return split(b, _reduce_once(b, field, b.add(join(b, x), join(b, y))), field.limbs)


def add_lazily(b: ir.IRBuilder, x: Limbs, y: Limbs) -> Limbs:
    """x + y, not reduced: below 2p, fit only for `mul` in a field with 4p < R (both base fields)."""
    return split(b, b.add(join(b, x), join(b, y)), len(x))


def sub(b: ir.IRBuilder, field: Field, x: Limbs, y: Limbs) -> Limbs:
    """x - y mod p."""
    less, borrow = _overflowing(b, "usub", join(b, x), join(b, y))
    repair = b.select(borrow, ir.Constant(less.type, field.modulus), ir.Constant(less.type, 0))
    return split(b, b.add(less, repair), field.limbs)


def is_zero(b: ir.IRBuilder, x: Limbs) -> Any:
    """An i1: whether every limb is zero."""
    union = x[0]
    for limb in x[1:]:
        union = b.or_(union, limb)
    return b.icmp_unsigned("==", union, ir.Constant(I64, 0))


def is_reduced(b: ir.IRBuilder, field: Field, x: Limbs) -> Any:
    """An i1: whether x < p."""
    wide = join(b, x)
    return b.icmp_unsigned("<", wide, ir.Constant(wide.type, field.modulus))


def join(b: ir.IRBuilder, x: Limbs) -> Any:
    """The limbs as one wide integer."""
    kind = ir.IntType(64 * len(x))
    out = b.zext(x[0], kind)
    for i, limb in enumerate(x[1:], 1):
        out = b.or_(out, b.shl(b.zext(limb, kind), ir.Constant(kind, 64 * i)))
    return out


def split(b: ir.IRBuilder, wide: Any, limbs: int) -> Limbs:
    """A wide integer as limbs."""
    return [b.trunc(b.lshr(wide, ir.Constant(wide.type, 64 * i)), I64) for i in range(limbs)]


def _reduce_once(b: ir.IRBuilder, field: Field, wide: Any) -> Any:
    less, borrow = _overflowing(b, "usub", wide, ir.Constant(wide.type, field.modulus))
    return b.select(borrow, wide, less)


def _overflowing(b: ir.IRBuilder, operation: str, x: Any, y: Any) -> tuple[Any, Any]:
    """`uadd` or `usub` of wide integers: the result and whether it wrapped, from one chain of carries."""
    kind = x.type
    function = _intrinsic(
        b, f"llvm.{operation}.with.overflow.i{kind.width}", ir.LiteralStructType([kind, ir.IntType(1)]), [kind, kind]
    )
    both = b.call(function, [x, y])
    return b.extract_value(both, 0), b.extract_value(both, 1)


def _intrinsic(b: ir.IRBuilder, name: str, returns: Any, arguments: list[Any]) -> Any:
    existing = b.module.globals.get(name)
    return existing or ir.Function(b.module, ir.FunctionType(returns, arguments), name)


def _mac(b: ir.IRBuilder, x: Any, y: Any, z: Any, carry: Any) -> tuple[Any, Any]:
    """x*y + z + carry as (low, high) limbs; it cannot overflow 128 bits."""
    product = b.mul(b.zext(x, I128), b.zext(y, I128))
    total = b.add(b.add(product, b.zext(z, I128)), b.zext(carry, I128))
    return b.trunc(total, I64), b.trunc(b.lshr(total, ir.Constant(I128, 64)), I64)
