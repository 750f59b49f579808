"""The PTX text of field operations: one `{ ... }` block for each, so that carry chains stay together.

Elements are n little-endian 32-bit limbs, reduced, in Montgomery form with R = 2^(32 n), as in `params`. In a block
`$0..` are the limbs of the result, then come those of the operands; where `Block.factor` is set, a last register
brings -p^-1 mod 2^32. The modulus is immediate.

Products are Montgomery's in CIOS form (Koc, Acar, Kaliski, "Analyzing and comparing Montgomery multiplication
algorithms", 1996). A row adds a limb times a whole operand. Its partial products are pairs of limbs (low, high) that
overlap by one: those that begin at even limbs and those that begin at odd limbs are summed apart, so that each sum
is one carry chain of `mad.lo.cc, madc.hi.cc`, which ptxas turns into one 32x32+64-bit multiply-add a pair (Emmart,
Luitjens, Weems, Woolley, "Optimizing modular multiplication for NVIDIA's Maxwell GPUs", 2016).

Everything here is text: it needs no GPU, no numba, no LLVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from gpu.field.params import Field

Limb = str | None
"""A register or an immediate; None: known to be zero."""

Row = Sequence[tuple[int, str]]
"""Limbs, each with its weight: 2^(32 weight)."""


@dataclass(frozen=True)
class Block:
    """The text of an operation on `n_operands` elements of `limbs` limbs."""

    text: str
    limbs: int
    n_operands: int
    factor: bool


def n_limbs(field: Field) -> int:
    """32-bit limbs of an element."""
    return 2 * field.limbs


def immediates(field: Field, value: int) -> list[str]:
    """`value` as limbs."""
    return [f"0x{value >> (32 * i) & 0xFFFFFFFF:08x}" for i in range(n_limbs(field))]


def factor_of(field: Field) -> int:
    """-p^-1 mod 2^32."""
    return field.n0 & 0xFFFFFFFF


def hides_factor(field: Field) -> bool:
    """Whether the factor must not be immediate: where it is -1 (BLS12-381's scalar field), ptxas would turn the
    products with it into shifts and subtractions that take longer than the multiply-adds.
    """
    return factor_of(field) == 0xFFFFFFFF


def has_room(field: Field, multiples: int) -> bool:
    """Whether `multiples` times p fits into the limbs: rows of so many products less one then never overflow."""
    return multiples * field.modulus < 1 << (64 * field.limbs)


@cache
def sum_of_products(field: Field, terms: int) -> Block:
    """a*b + c*d + ... (`terms` products) / R mod p, with one reduction for all.

    Rows stay below (terms + 1) p, the sum before the last subtraction below p + terms p^2 / R. ValueError where
    that has no room.
    """
    if not has_room(field, terms + 1):
        raise ValueError(f"{field.name} has no room for {terms} products in one reduction")
    w = _Writer(field, 2 * terms, needs_factor=True)
    rows = _Rows(w)
    for i in range(w.n):
        for k in range(terms):
            rows.add(list(enumerate(w.operands[2 * k])), w.operands[2 * k + 1][i])
        rows.clear_lowest()
        rows.drop_lowest()
    return w.finish(rows.total())


@cache
def square(field: Field) -> Block:
    """a^2 / R mod p: of row i only the products a[i] a[j] with j >= i, those with j > i doubled beforehand.

    Rows stay below 3p; ValueError where that has no room.
    """
    if not has_room(field, 3):
        raise ValueError(f"{field.name} has no room for doubled products")
    w = _Writer(field, 1, needs_factor=True)
    x = w.operands[0]
    doubled = [""] + [w.value("shf.l.wrap.b32", low, high, "1") for low, high in pairwise(x)]
    rows = _Rows(w)
    for i in range(w.n):
        row: list[tuple[int, str]] = [(i, x[i])]
        if i + 1 < w.n:
            # Without the top bit of a[i], which the shift across limbs would bring along.
            row.append((i + 1, w.value("shl.b32", x[i + 1], "1")))
        row += [(j, doubled[j]) for j in range(i + 2, w.n)]
        # Only row 0 reaches the limb that the reduction looks at; later ones go after it, which spares carries.
        if i == 0:
            rows.add(row, x[i])
        rows.clear_lowest()
        if i > 0:
            rows.add(row, x[i])
        rows.drop_lowest()
    return w.finish(rows.total())


@cache
def from_montgomery(field: Field) -> Block:
    """a / R mod p: the plain value."""
    w = _Writer(field, 1, needs_factor=True)
    rows = _Rows(w, w.operands[0])
    for _ in range(w.n):
        rows.clear_lowest()
        rows.drop_lowest()
    return w.finish(rows.total())


@cache
def add(field: Field) -> Block:
    """a + b mod p."""
    w = _Writer(field, 2)
    return w.finish(w.chain("add", w.operands[0], w.operands[1]))


@cache
def sub(field: Field) -> Block:
    """a - b mod p."""
    w = _Writer(field, 2)
    return w.repair(w.chain("sub", w.operands[0], w.operands[1], borrow=True))


@cache
def neg(field: Field) -> Block:
    """-a mod p."""
    w = _Writer(field, 1)
    return w.repair(w.chain("sub", immediates(field, 0), w.operands[0], borrow=True))


@cache
def neg_lazily(field: Field) -> Block:
    """p - a: up to and including p, which only products take."""
    w = _Writer(field, 1)
    return w.give(w.chain("sub", w.modulus, w.operands[0]))


class _Writer:
    """Collects instructions. Every value has a register of its own."""

    def __init__(self, field: Field, n_operands: int, needs_factor: bool = False) -> None:
        self.n = n = n_limbs(field)
        self.modulus = immediates(field, field.modulus)
        self.operands = [[f"${n * (1 + k) + i}" for i in range(n)] for k in range(n_operands)]
        self.factor = f"0x{factor_of(field):08x}"
        self._hidden = needs_factor and hides_factor(field)
        if self._hidden:
            self.factor = f"${n * (1 + n_operands)}"
        self._lines: list[str] = []
        self._count = 0

    def value(self, operation: str, *arguments: Limb) -> str:
        """The register that holds the result of an instruction."""
        self._count += 1
        register = f"t{self._count}"
        self.write(operation, register, *arguments)
        return register

    def write(self, operation: str, *arguments: Limb) -> None:
        self._lines.append(f"{operation} {', '.join(argument or '0' for argument in arguments)};")

    def chain(self, operation: str, x: Sequence[Limb], y: Sequence[Limb], borrow: bool = False) -> list[str]:
        """x + y or x - y over all limbs; `borrow`: the carry flag is wanted afterwards."""
        out = []
        for i, (left, right) in enumerate(zip(x, y, strict=True)):
            flag = ".cc" if borrow or i < len(x) - 1 else ""
            out.append(self.value(f"{operation}{'c' if i else ''}{flag}.u32", left, right))
        return out

    def finish(self, total: Sequence[str]) -> Block:
        """The block that returns `total` mod p; total < 2p."""
        less = self.chain("sub", total, self.modulus, borrow=True)
        self._borrow("eq")
        for i, (reduced, whole) in enumerate(zip(less, total, strict=True)):
            self.write("selp.b32", f"${i}", reduced, whole, "q")
        return self.block()

    def repair(self, difference: Sequence[str]) -> Block:
        """The block that returns `difference`, plus p when the subtraction before borrowed."""
        self._borrow("ne")
        more = self.chain("add", difference, self.modulus)
        for i, (repaired, whole) in enumerate(zip(more, difference, strict=True)):
            self.write("selp.b32", f"${i}", repaired, whole, "q")
        return self.block()

    def give(self, total: Sequence[str]) -> Block:
        """The block that returns `total` as it is."""
        for i, limb in enumerate(total):
            self.write("mov.b32", f"${i}", limb)
        return self.block()

    def block(self) -> Block:
        declared = f".reg .u32 t<{self._count + 1}>; .reg .pred q;"
        return Block("{ " + " ".join([declared, *self._lines]) + " }", self.n, len(self.operands), self._hidden)

    def _borrow(self, test: str) -> None:
        """Sets q by the borrow of the chain before: `eq`, when there was none, `ne`, when there was."""
        self.write(f"setp.{test}.u32", "q", self.value("subc.u32", "0", "0"), "0")


class _Rows:
    """The running sum of a product: even[i] weighs 2^(32 i), odd[i] weighs 2^(32 (i + 1)), and `low`, which the
    last shift left over, weighs one.
    """

    def __init__(self, w: _Writer, start: Sequence[str] | None = None) -> None:
        self._w = w
        self._even: list[Limb] = [*start] if start else [None] * w.n
        self._odd: list[Limb] = [None] * w.n
        self._low: Limb = None

    def add(self, row: Row, scalar: str) -> None:
        """Adds `scalar` times the limbs of `row`."""
        self._accumulate(row, scalar, self._settle())

    def clear_lowest(self) -> None:
        """Adds the multiple of p that makes the lowest limb zero."""
        carried = self._settle()
        multiple = self._w.value("mul.lo.u32", self._even[0], self._w.factor)
        self._accumulate(list(enumerate(self._w.modulus)), multiple, carried)

    def drop_lowest(self) -> None:
        """Divides by 2^32: what weighed odd limbs weighs even ones."""
        self._low = self._even[1]
        self._even, self._odd = self._odd, [*self._even[2:], None, None]

    def total(self) -> list[str]:
        """Both sums in one."""
        return self._w.chain("add", self._even, [self._low, *self._odd[:-1]])

    def _settle(self) -> bool:
        """Adds `low`; whether the carry flag now holds a carry into the odd sum."""
        if self._low is None:
            return False
        self._even[0], self._low = self._w.value("add.cc.u32", self._even[0], self._low), None
        return True

    def _accumulate(self, row: Row, scalar: str, carried: bool) -> None:
        self._chain(self._odd, [(j - 1, limb) for j, limb in row if j % 2], scalar, carried, overflows=False)
        even = [(j, limb) for j, limb in row if j % 2 == 0]
        if even:
            self._chain(self._even, even, scalar, carried=False, overflows=True)
            self._odd[-1] = self._w.value("addc.u32", self._odd[-1], None)

    def _chain(self, total: list[Limb], row: Row, scalar: str, carried: bool, overflows: bool) -> None:
        """total[j], total[j + 1] += scalar * limb for each (j, limb): one carry chain over neighbours."""
        for k, (j, limb) in enumerate(row):
            flag = ".cc" if overflows or k < len(row) - 1 else ""
            total[j] = self._w.value(f"{'madc' if carried else 'mad'}.lo.cc.u32", limb, scalar, total[j])
            total[j + 1] = self._w.value(f"madc.hi{flag}.u32", limb, scalar, total[j + 1])
            carried = True
