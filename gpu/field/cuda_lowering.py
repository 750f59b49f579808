"""From field operations to LLVM for NVVM: what the intrinsics of `cuda` are made of.

A prime field's element is a list of i32 limbs here; one of degree 2 is a list of two of those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba.cuda import types

from gpu.field import ptx
from gpu.field.params import Field

I32 = ir.IntType(32)
Limbs = list[Any]
"""LLVM values: the limbs of a prime field's element."""


class FieldType(types.Type):
    """The type that names a field to the intrinsics."""

    def __init__(self, field: Field, degree: int, cold: bool) -> None:
        self.field, self.degree, self.cold = field, degree, cold
        self.limbs = ptx.n_limbs(field)
        self.element = types.UniTuple(types.uint32, degree * self.limbs)
        super().__init__(name=f"Field({field.name}, {degree}, {'cold' if cold else 'hot'})")


class Emitter:
    """Emits operations on lists of limbs into a function."""

    def __init__(self, builder: ir.IRBuilder, kind: FieldType) -> None:
        self.builder, self.kind = builder, kind

    def block(self, block: ptx.Block, *operands: Limbs) -> Limbs:
        """Inline assembly."""
        b = self.builder
        values = [limb for operand in operands for limb in operand]
        if block.factor:
            values.append(b.load(self._factor(), typ=I32))
        result = ir.LiteralStructType([I32] * block.limbs)
        signature = ir.FunctionType(result, [I32] * len(values))
        constraints = ",".join(["=&r"] * block.limbs + ["r"] * len(values))
        assembly = ir.InlineAsm(signature, block.text, constraints, side_effect=False)
        packed = b.call(assembly, values)
        return [b.extract_value(packed, i) for i in range(block.limbs)]

    def products(self, *operands: Limbs) -> Limbs:
        """operands[0] operands[1] + operands[2] operands[3] + ..."""
        return self.block(ptx.sum_of_products(self.kind.field, len(operands) // 2), *operands)

    def limbwise(self, block: Callable[[Field], ptx.Block], *operands: list[Limbs]) -> list[Limbs]:
        """An operation that treats the coefficients alike."""
        return [self.block(block(self.kind.field), *parts) for parts in zip(*operands, strict=True)]

    def mul(self, a: list[Limbs], b: list[Limbs]) -> list[Limbs]:
        """Degree 2: (a0 b0 - a1 b1) + (a0 b1 + a1 b0) u. Two products in one reduction make as many multiply-adds as
        Karatsuba's three with three, without his additions.
        """
        if self.kind.degree == 1:
            return [self.products(a[0], b[0])]
        minus = self.block(ptx.neg_lazily(self.kind.field), a[1])
        return [self.products(a[0], b[0], minus, b[1]), self.products(a[0], b[1], a[1], b[0])]

    def sqr(self, a: list[Limbs]) -> list[Limbs]:
        """Degree 2: (a0 + a1)(a0 - a1) + 2 a0 a1 u."""
        field = self.kind.field
        if self.kind.degree == 2:
            total, difference = self.block(ptx.add(field), *a), self.block(ptx.sub(field), *a)
            twice = self.block(ptx.add(field), a[0], a[0])
            return [self.products(total, difference), self.products(twice, a[1])]
        if ptx.has_room(field, 3):
            return [self.block(ptx.square(field), a[0])]
        return [self.products(a[0], a[0])]

    def mul2add(self, a: list[Limbs], b: list[Limbs], c: list[Limbs], d: list[Limbs]) -> list[Limbs]:
        degree = self.kind.degree
        if self.kind.cold or not ptx.has_room(self.kind.field, 2 * degree + 1):
            return self.limbwise(ptx.add, self.call("mul", a, b), self.call("mul", c, d))
        if degree == 1:
            return [self.products(a[0], b[0], c[0], d[0])]
        minus_a, minus_c = (self.block(ptx.neg_lazily(self.kind.field), x[1]) for x in (a, c))
        return [
            self.products(a[0], b[0], minus_a, b[1], c[0], d[0], minus_c, d[1]),
            self.products(a[0], b[1], a[1], b[0], c[0], d[1], c[1], d[0]),
        ]

    def from_montgomery(self, a: list[Limbs]) -> list[Limbs]:
        return self.limbwise(ptx.from_montgomery, a)

    def call(self, name: str, *operands: list[Limbs]) -> list[Limbs]:
        """Emits the operation `name`, or in a cold field a call of the function that holds it."""
        kind = self.kind
        if not kind.cold or name == "mul2add":
            return getattr(self, name)(*operands)
        b, words = self.builder, kind.degree * kind.limbs
        symbol = _symbol(kind, name, len(operands))
        function = b.module.globals.get(symbol)
        if function is None:
            function = _function(b.module, symbol, kind, name, len(operands))
            function.linkage = "linkonce_odr"
            function.attributes.add("noinline")
        packed = b.call(function, [limb for operand in operands for limb in join(operand)])
        return split(kind, [b.extract_value(packed, i) for i in range(words)])

    def _factor(self) -> Any:
        """-p^-1 in constant memory that the compiler must believe to change; see `ptx.hides_factor`."""
        name = f"provefleet_factor_{self.kind.field.name}"
        variable = self.builder.module.globals.get(name)
        if variable is None:
            variable = ir.GlobalVariable(self.builder.module, I32, name, addrspace=4)
            variable.linkage = "linkonce_odr"
            variable.initializer = ir.Constant(I32, ptx.factor_of(self.kind.field))
        return variable


@cache
def _symbol(kind: FieldType, name: str, n_operands: int) -> str:
    """Two different bodies under one name would silently become one when modules are linked: so named by the body."""
    body = str(_function(ir.Module(), "body", kind, name, n_operands))
    return f"provefleet_{name}_{kind.field.name}_{kind.degree}_{hashlib.sha256(body.encode()).hexdigest()[:16]}"


def _function(module: ir.Module, symbol: str, kind: FieldType, name: str, n_operands: int) -> ir.Function:
    words = kind.degree * kind.limbs
    returns = ir.LiteralStructType([I32] * words)
    function = ir.Function(module, ir.FunctionType(returns, [I32] * words * n_operands), symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    operands = [split(kind, list(function.args[k * words : (k + 1) * words])) for k in range(n_operands)]
    packed: Any = ir.Constant(returns, ir.Undefined)
    for i, limb in enumerate(join(getattr(Emitter(builder, kind), name)(*operands))):
        packed = builder.insert_value(packed, limb, i)
    builder.ret(packed)
    return function


def split(kind: FieldType, limbs: Limbs) -> list[Limbs]:
    """The coefficients of an element."""
    return [limbs[i * kind.limbs : (i + 1) * kind.limbs] for i in range(kind.degree)]


def join(parts: list[Limbs]) -> Limbs:
    """All limbs of an element."""
    return [limb for part in parts for limb in part]
