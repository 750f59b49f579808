"""Emitters of the vector back end: field operations on eight elements at once, in limbs of 52 bits.

Values are lazily reduced, and each carries what is known of it at emission time: between which multiples of p
it lies, and between which bounds its limbs do. Every emitter computes these for its result and raises
BoundError where an operand does not fit, so that a formula that could overflow is never compiled. What lies in
memory is below `STORED` times p; `store` reduces what isn't.

Multiplication: Montgomery's with R = 2^(52 L), row by row as in CIOS (Koc, Acar, Kaliski 1996), low and high
halves of the products summed apart (Gueron, Krasnov, "Accelerating big integer arithmetic using Intel IFMA
extensions", 2016): 4 L^2 + L multiply-adds. Its result is below (1 + x y p/R) p for factors below x p and y p,
which for BN254 (R/p = 84) and BLS12-381's scalars (35) is markedly above p.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from llvmlite import ir

from gpu.field import vector as v
from gpu.field.kinds import DIGIT_BITS, LANES, KernelField
from gpu.field.limbs import I64

STORED = Fraction(5, 4)
"""What lies in memory is below this many times p."""
_MULTIPLES = LANES  # `reduce` subtracts one of 0..7 times p, looked up in one vector


class BoundError(Exception):
    """An operand may be too large for an operation: a mistake in a formula, found when it is emitted."""


@dataclass(frozen=True)
class Value:
    """One element a lane. `low` and `high`: low p <= value < high p. `least` and `most`: of all limbs but the
    highest, which holds the rest. `signed`: whether the highest may be negative.
    """

    limbs: tuple[Any, ...]
    low: Fraction
    high: Fraction
    least: int = 0
    most: int = v.DIGIT
    signed: bool = False

    @property
    def normal(self) -> bool:
        """Whether the limbs are what vpmadd52 reads: 52 bits, no sign."""
        return self.least >= 0 and self.most <= v.DIGIT and not self.signed


class Arithmetic:
    """The emitters for one field. A mask is a vector of eight i1."""

    def __init__(self, builder: ir.IRBuilder, kind: KernelField) -> None:
        self.b = builder
        self.kind = kind
        self.p = kind.field.modulus
        self.n = kind.limbs
        self._radix = 1 << (DIGIT_BITS * self.n)
        self._n0 = -pow(self.p, -1, 1 << DIGIT_BITS) % (1 << DIGIT_BITS)

    # Memory

    def load(self, pointer: Any) -> list[Value]:
        """The coefficients of a block."""
        limbs = [v.load(self.b, pointer, i) for i in range(self.kind.degree * self.n)]
        return [self.stored(limbs[i : i + self.n]) for i in range(0, len(limbs), self.n)]

    def store(self, pointer: Any, parts: list[Value]) -> None:
        """Writes a block, each coefficient reduced as far as memory demands."""
        limbs = [limb for part in parts for limb in self.fit(part).limbs]
        for i, limb in enumerate(limbs):
            v.store(self.b, limb, pointer, i)

    def stored(self, limbs: Any) -> Value:
        """Limbs that come from memory."""
        return Value(tuple(limbs), Fraction(0), STORED)

    def below_p(self, limbs: Any) -> Value:
        """Limbs of reduced values."""
        return Value(tuple(limbs), Fraction(0), Fraction(1))

    def fit(self, x: Value) -> Value:
        """x as it may lie in memory."""
        return self.normal(x) if x.high <= STORED and x.low >= 0 else self.reduce(x)

    def constant(self, value: int) -> Value:
        """A number below p in every lane, as it stands."""
        if not 0 <= value < self.p:
            raise BoundError(f"constant {value} is not below the modulus")
        limbs = tuple(v.splat(limb) for limb in self._split(value))
        return Value(limbs, Fraction(value, self.p), Fraction(value + 1, self.p))

    # Arithmetic

    def mul(self, x: Value, y: Value) -> Value:
        """x y / R."""
        x, y = self.normal(x), self.normal(y)
        b, n = self.b, self.n
        low, high, first = [v.ZERO] * n, [v.ZERO] * n, v.ZERO
        for i in range(n):
            for j in range(n):
                low[j] = v.madd_low(b, low[j], x.limbs[j], y.limbs[i])
                high[j] = v.madd_high(b, high[j], x.limbs[j], y.limbs[i])
            low, high, first = self._montgomery_row(low, high, first)
        return self._product(x, y, low, high, first)

    def product_of(self, x: Any, y: Any) -> Value:
        """The product of two elements of the prime field in memory."""
        return self.mul(self.coefficient(x), self.coefficient(y))

    def coefficient(self, pointer: Any) -> Value:
        """One element of the prime field."""
        return self.stored([v.load(self.b, pointer, i) for i in range(self.n)])

    def sqr(self, x: Value) -> Value:
        """x^2 / R, with the products of two different limbs taken once and doubled."""
        x = self.normal(x)
        b, n = self.b, self.n
        low, high = [v.ZERO] * (2 * n), [v.ZERO] * (2 * n)
        for i in range(n):
            for j in range(i + 1, n):
                low[i + j] = v.madd_low(b, low[i + j], x.limbs[i], x.limbs[j])
                high[i + j] = v.madd_high(b, high[i + j], x.limbs[i], x.limbs[j])
        low, high = ([b.add(limb, limb) for limb in half] for half in (low, high))
        for i in range(n):
            low[2 * i] = v.madd_low(b, low[2 * i], x.limbs[i], x.limbs[i])
            high[2 * i] = v.madd_high(b, high[2 * i], x.limbs[i], x.limbs[i])
        # Row by row; what a row does not reach yet joins when the window comes to it.
        window, above, first = low[:n], high[:n], v.ZERO
        for i in range(n):
            window, above, first = self._montgomery_row(window, above, first)
            window[n - 1], above[n - 1] = low[n + i], high[n + i]
        return self._product(x, x, window, above, first)

    def _montgomery_row(self, low: list[Any], high: list[Any], first: Any) -> tuple[list[Any], list[Any], Any]:
        """Adds the multiple of p that clears the lowest limb, and shifts by a limb. `high[j]` counts one limb
        above `low[j]`; `first` is what else belongs to the lowest limb.
        """
        b = self.b
        lowest = b.add(low[0], first)
        factor = v.madd_low(b, v.ZERO, lowest, v.splat(self._n0))
        low, high = list(low), list(high)
        low[0] = lowest
        for j, limb in enumerate(self._split(self.p)):
            low[j] = v.madd_low(b, low[j], factor, v.splat(limb))
            high[j] = v.madd_high(b, high[j], factor, v.splat(limb))
        first = b.add(b.lshr(low[0], v.splat(DIGIT_BITS)), high[0])
        return [*low[1:], v.ZERO], [*high[1:], v.ZERO], first

    def _product(self, x: Value, y: Value, low: list[Any], high: list[Any], first: Any) -> Value:
        b, n = self.b, self.n
        limbs = [b.add(low[0], first)] + [b.add(low[j], high[j - 1]) for j in range(1, n)]
        # A limb sums at most 4 n + 2 products' halves, doubled ones counted twice, and a carry.
        most = (4 * n + 2) * (1 << DIGIT_BITS)
        if most >= 1 << 63:
            raise BoundError("too many limbs for 64-bit sums")
        bound = 1 + x.high * y.high * self.p / self._radix
        return self.normal(Value(tuple(limbs), Fraction(0), bound, 0, most))

    def add(self, x: Value, y: Value) -> Value:
        """x + y, not reduced."""
        limbs = tuple(self.b.add(i, j) for i, j in zip(x.limbs, y.limbs, strict=True))
        signed = x.signed or y.signed
        return self._checked(Value(limbs, x.low + y.low, x.high + y.high, x.least + y.least, x.most + y.most, signed))

    def add_lazily(self, x: Value, y: Value) -> Value:
        """x + y as a factor: here every sum is lazy."""
        return self.add(x, y)

    def sub(self, x: Value, y: Value) -> Value:
        """x - y + k p for the least k that keeps it positive, not reduced."""
        return self._sub(x, y, max(0, -((x.low - y.high) // 1)))

    def neg(self, x: Value) -> Value:
        return self._sub(Value((v.ZERO,) * self.n, Fraction(0), Fraction(1, self.p), 0, 0), x, -((-x.high) // 1))

    def _sub(self, x: Value, y: Value, k: int) -> Value:
        b = self.b
        differences = [b.sub(i, j) for i, j in zip(x.limbs, y.limbs, strict=True)]
        multiple = self._split(k * self.p)
        limbs = [b.add(d, v.splat(limb)) for d, limb in zip(differences, multiple, strict=True)]
        least = x.least - y.most + min(multiple[:-1])
        most = x.most - y.least + max(multiple[:-1])
        return self._checked(Value(tuple(limbs), x.low - y.high + k, x.high - y.low + k, least, most, True))

    def divide(self, x: Value, k: Any) -> Value:
        """x / 2^k mod p for a k (an i64) of 6..32: Montgomery's step for k bits."""
        b, x = self.b, self.normal(x)
        mask = b.sub(b.shl(I64(1), k), I64(1))
        factor = b.and_(v.madd_low(b, v.ZERO, x.limbs[0], v.splat(self._n0)), v.spread(b, mask))
        modulus = [v.splat(limb) for limb in self._split(self.p)]
        limbs = [v.madd_low(b, limb, factor, digit) for limb, digit in zip(x.limbs, modulus, strict=True)]
        above = [v.madd_high(b, v.ZERO, factor, digit) for digit in modulus]
        limbs = [limbs[0], *(b.add(limb, high) for limb, high in zip(limbs[1:], above, strict=False))]
        limbs = list(self._propagate((*limbs, above[-1])))
        right, left = v.spread(b, k), v.spread(b, b.sub(I64(DIGIT_BITS), k))
        out = [b.or_(b.lshr(low, right), b.and_(b.shl(high, left), v.splat(v.DIGIT))) for low, high in pairwise(limbs)]
        return Value(tuple(out), Fraction(0), 1 + x.high / 64)

    # Normal forms

    def normal(self, x: Value) -> Value:
        """x in limbs of 52 bits. x must not be negative."""
        if x.normal:
            return x
        if x.low < 0 or x.high * self.p > self._radix:
            raise BoundError(f"a value between {x.low} p and {x.high} p has no normal form")
        return Value(self._propagate(x.limbs), x.low, x.high)

    def reduce(self, x: Value) -> Value:
        """x less the multiple of p that its highest limb suggests: little more than p is left at most."""
        if x.high > _MULTIPLES or x.low < 0:
            raise BoundError(f"a value between {x.low} p and {x.high} p can't be reduced in one step")
        p, unit = self.p, 1 << (DIGIT_BITS * (self.n - 1))
        if x.signed and x.low * p < self._spread(x.most) * unit:
            x = self.normal(x)  # the highest limb might be negative
        # q = floor(floor(top / 2^shift) * inverse / 2^52), where inverse is a little below 2^(52 + shift) unit / p,
        # so little that q p <= x although the lower limbs may be negative.
        shift = max(0, (p // unit).bit_length() - 17)
        below, above = self._spread(-x.least), self._spread(x.most)
        margin = 1 + Fraction(2 * below * unit, p)
        inverse = int((1 << (DIGIT_BITS + shift)) * unit / (p * margin))
        top = self.b.lshr(x.limbs[-1], v.splat(shift)) if shift else x.limbs[-1]
        quotient = v.madd_high(self.b, v.ZERO, top, v.splat(inverse))
        ratio = Fraction(inverse * p, (1 << (DIGIT_BITS + shift)) * unit)  # of q p to the value, at most
        if ratio * (1 + Fraction(below * unit, p)) > 1:
            raise BoundError("the quotient's estimate may be too large")
        high = 1 + x.high * (1 - ratio) + Fraction((above + (1 << shift)) * unit, p)
        if high > STORED:
            raise BoundError(f"reduced values may reach {float(high)} p")
        multiples = [self._split(k * p) for k in range(_MULTIPLES)]
        limbs = tuple(
            self.b.sub(limb, v.lookup(self.b, v.vector([multiple[j] for multiple in multiples]), quotient))
            for j, limb in enumerate(x.limbs)
        )
        return self.normal(Value(limbs, Fraction(0), min(high, x.high), x.least - v.DIGIT, x.most, True))

    def canonical(self, x: Value) -> Value:
        """x mod p, exactly."""
        b = self.b
        x = self.fit(x)
        if x.high <= 1:
            return x
        limbs = tuple(b.sub(i, v.splat(limb)) for i, limb in zip(x.limbs, self._split(self.p), strict=True))
        less = self._propagate(limbs)
        small = b.icmp_signed("<", less[-1], v.ZERO)
        chosen = tuple(b.select(small, i, j) for i, j in zip(x.limbs, less, strict=True))
        return Value(chosen, Fraction(0), Fraction(1))

    def _propagate(self, limbs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Carries handed up; the highest limb keeps the sign."""
        b, out, total = self.b, [], limbs[0]
        for limb in limbs[1:]:
            out.append(b.and_(total, v.splat(v.DIGIT)))
            total = b.add(limb, v.carry(b, total))
        return (*out, total)

    # Masks

    def is_zero(self, parts: list[Value]) -> Any:
        """Where every coefficient is 0 mod p."""
        verdict = None
        for part in parts:
            part = self.fit(part)
            zero = self._all_zero(list(part.limbs))
            modulus = self._split(self.p)
            same = self._all_zero([self.b.xor(i, v.splat(limb)) for i, limb in zip(part.limbs, modulus, strict=True)])
            mine = self.b.or_(zero, same)
            verdict = mine if verdict is None else self.b.and_(verdict, mine)
        return verdict

    def equal(self, x: list[Value], y: list[Value]) -> Any:
        """Where x = y mod p."""
        return self.is_zero([self.sub(i, j) for i, j in zip(x, y, strict=True)])

    def select(self, mask: Any, x: Value, y: Value) -> Value:
        """x where the mask is set, else y."""
        limbs = tuple(self.b.select(mask, i, j) for i, j in zip(x.limbs, y.limbs, strict=True))
        low, high, signed = min(x.low, y.low), max(x.high, y.high), x.signed or y.signed
        return Value(limbs, low, high, min(x.least, y.least), max(x.most, y.most), signed)

    def mask_result(self, mask: Any) -> Any:
        """A mask as a kernel gets it: an i64, one bit a lane."""
        return v.mask_bits(self.b, mask)

    def mask_operand(self, bits: Any) -> Any:
        """A kernel's i64 as a mask."""
        return v.bits_mask(self.b, bits)

    # Details

    def _all_zero(self, limbs: list[Any]) -> Any:
        union = limbs[0]
        for limb in limbs[1:]:
            union = self.b.or_(union, limb)
        return self.b.icmp_unsigned("==", union, v.ZERO)

    def _split(self, value: int) -> list[int]:
        """Limbs of 52 bits; the highest holds the rest."""
        limbs = [value >> (DIGIT_BITS * i) & v.DIGIT for i in range(self.n - 1)]
        return [*limbs, value >> (DIGIT_BITS * (self.n - 1))]

    def _checked(self, x: Value) -> Value:
        """Limb sums must stay far from 64 bits, the value inside the limbs."""
        if max(-x.least, x.most) >= 1 << 60 or x.high * self.p > self._radix:
            raise BoundError(f"a value up to {x.high} p, limbs from {x.least} to {x.most}")
        return x

    @staticmethod
    def _spread(most: int) -> int:
        """How much the lower limbs can add, in units of the highest one, rounded up."""
        return max(0, -(-most // v.DIGIT))
