"""From an operation on (array, index) pairs inside a kernel to a call of an LLVM function on pointers.

The function of an operation is emitted once into each module, `noinline`, so that code stays small and
compiles fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types

from gpu.field import ifma, limbs
from gpu.field.compiled import DIGEST
from gpu.field.kinds import KernelField, of_marker_length
from gpu.field.limbs import I64

I1 = ir.IntType(1)
I32 = ir.IntType(32)
WORDS, ROWS, REFS, SINGLE = "words", "rows", "refs", "single"
"""Operands that are no elements: canonical elements of 64-bit words, rows (see KernelField), references (uint32: a
row's index times two, plus one where its negative is meant), and single 64-bit words. An index counts one of each.
"""
Stride = int | str


@dataclass(frozen=True)
class Operation:
    """`emit(machine, *pointers, *integers, *flags)` writes the body. `strides`: for each operand, how many
    elements one index steps, or WORDS, ROWS, REFS or SINGLE.

    `returns_mask`: the body returns a mask. `returns_bool`: it returns an i1; else nothing. `integers`: how many
    int64 follow the operands. `flag`: whether a boolean does, at the end.
    """

    name: str
    emit: Callable[..., None]
    strides: tuple[Stride, ...]
    returns_bool: bool = False
    flag: bool = False
    returns_mask: bool = False
    integers: int = 0


class Machine:
    """What a body is written with: the builder, the field and its arithmetic on values in registers (`arith`),
    and calls of other operations on pointers.
    """

    def __init__(self, builder: ir.IRBuilder, kind: KernelField) -> None:
        self.builder = builder
        self.kind = kind
        self.arith: Any = (limbs if kind.lanes == 1 else ifma).Arithmetic(builder, kind)

    def temporaries(self, count: int) -> list[Any]:
        """Pointers to fresh elements (blocks) on the stack. Only at the top of a body."""
        slot = ir.ArrayType(I64, self.kind.words)
        out = []
        for _ in range(count):
            place = self.builder.alloca(slot)
            place.align = 8 * self.kind.lanes
            out.append(self.builder.bitcast(place, I64.as_pointer()))
        return out

    def element(self, pointer: Any, index: int) -> Any:
        """The pointer to the element (block) `index` after `pointer`."""
        return self.builder.gep(pointer, [ir.Constant(I64, index * self.kind.words)])

    def call(self, operation: Operation, *pointers: Any) -> Any:
        return self.builder.call(function_of(self.builder.module, operation, self.kind), pointers)


def function_of(module: ir.Module, operation: Operation, kind: KernelField) -> Any:
    """The LLVM function of an operation in this module.

    Its name carries the instruction set and a digest of all kernel sources: two different bodies under one name
    would silently become one.
    """
    name = f"provefleet_{operation.name}_{kind.field.name}_{kind.degree}_{kind.isa}_{DIGEST}"
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    arguments = [I32.as_pointer() if stride == REFS else I64.as_pointer() for stride in operation.strides]
    arguments += [I64] * operation.integers + [I1] * operation.flag
    returns: Any = ir.VoidType()
    if operation.returns_bool or operation.returns_mask:
        returns = I64 if operation.returns_mask and kind.lanes > 1 else I1
    function = ir.Function(module, ir.FunctionType(returns, arguments), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    operation.emit(Machine(builder, kind), *function.args)
    if not builder.block.is_terminated:
        builder.ret_void()
    return function


def operation(op: Operation, field: Any, *operands: Any) -> tuple[Any, Callable[..., Any]]:
    """Signature and code generator of an intrinsic: arrays keep their type, indexes are widened to int64.

    A mask is a bool to a kernel of one lane, and an int64 with one bit a lane to one of eight.
    """
    n = 2 * len(op.strides)
    wanted = [types.int64 if i % 2 else operand for i, operand in enumerate(operands[:n])]
    wanted += [types.int64] * op.integers + [types.boolean] * op.flag
    lanes = of_marker_length(field.count).lanes
    returns: Any = types.void
    if op.returns_bool or op.returns_mask:
        returns = types.int64 if op.returns_mask and lanes > 1 else types.boolean

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        kind = of_marker_length(signature.args[0].count)
        pointers = [
            _pointer(context, builder, signature.args[1 + 2 * k], args[1 + 2 * k], args[2 + 2 * k], stride, kind)
            for k, stride in enumerate(op.strides)
        ]
        result = builder.call(function_of(builder.module, op, kind), pointers + list(args[1 + n :]))
        return context.get_dummy_value() if returns is types.void else result

    return returns(field, *wanted), generate


def _pointer(
    context: Any, builder: ir.IRBuilder, array_type: Any, array: Any, index: Any, stride: Stride, kind: KernelField
) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    if stride == REFS:
        return builder.gep(builder.bitcast(data, I32.as_pointer()), [index])
    words = {WORDS: kind.degree * kind.field.limbs, ROWS: kind.row_words, SINGLE: 1}.get(str(stride))
    if words is None:
        words = int(stride) * kind.words
    base = builder.bitcast(data, I64.as_pointer())
    return builder.gep(base, [builder.mul(index, ir.Constant(index.type, words))])
