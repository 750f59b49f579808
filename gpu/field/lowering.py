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

from gpu.field.compiled import DIGEST
from gpu.field.kinds import KernelField, of_marker_length
from gpu.field.limbs import I64

I1 = ir.IntType(1)


@dataclass(frozen=True)
class Operation:
    """`emit(machine, pointers, flag)` writes the body. `strides`: for each operand, how many elements one
    index steps.

    `returns_bool`: the body returns an i1, else nothing. `flag`: the operation takes a boolean after its
    operands.
    """

    name: str
    emit: Callable[..., None]
    strides: tuple[int, ...]
    returns_bool: bool = False
    flag: bool = False


class Machine:
    """What a body is written with: the builder, the field, and calls of other operations on pointers."""

    def __init__(self, builder: ir.IRBuilder, kind: KernelField) -> None:
        self.builder = builder
        self.kind = kind

    def temporaries(self, count: int) -> list[Any]:
        """Pointers to fresh elements on the stack. Only at the top of a body."""
        slot = ir.ArrayType(I64, self.kind.words)
        return [self.builder.bitcast(self.builder.alloca(slot), I64.as_pointer()) for _ in range(count)]

    def element(self, pointer: Any, index: int) -> Any:
        """The pointer to the element `index` after `pointer`."""
        return self.builder.gep(pointer, [ir.Constant(I64, index * self.kind.words)])

    def call(self, operation: Operation, *pointers: Any) -> Any:
        return self.builder.call(function_of(self.builder.module, operation, self.kind), pointers)


def function_of(module: ir.Module, operation: Operation, kind: KernelField) -> Any:
    """The LLVM function of an operation in this module.

    Its name carries a digest of all kernel sources: two different bodies under one name would silently become
    one.
    """
    name = f"provefleet_{operation.name}_{kind.field.name}_{kind.degree}_scalar_{DIGEST}"
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    arguments = [I64.as_pointer()] * len(operation.strides) + [I1] * operation.flag
    returns = I1 if operation.returns_bool else ir.VoidType()
    function = ir.Function(module, ir.FunctionType(returns, arguments), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    operation.emit(Machine(builder, kind), *function.args)
    if not builder.block.is_terminated:
        builder.ret_void()
    return function


def operation(op: Operation, field: Any, *operands: Any) -> tuple[Any, Callable[..., Any]]:
    """Signature and code generator of an intrinsic: arrays keep their type, indexes are widened to int64."""
    n = 2 * len(op.strides)
    wanted = [types.int64 if i % 2 else operand for i, operand in enumerate(operands[:n])]
    wanted += [types.boolean] * op.flag
    returns = types.boolean if op.returns_bool else types.void

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        kind = of_marker_length(signature.args[0].count)
        pointers = [
            _pointer(
                context,
                builder,
                signature.args[1 + 2 * k],
                args[1 + 2 * k],
                args[2 + 2 * k],
                stride * kind.words,
            )
            for k, stride in enumerate(op.strides)
        ]
        flags = list(args[1 + n :])
        result = builder.call(function_of(builder.module, op, kind), pointers + flags)
        return result if op.returns_bool else context.get_dummy_value()

    return returns(field, *wanted), generate


def _pointer(context: Any, builder: ir.IRBuilder, array_type: Any, array: Any, index: Any, words: int) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    base = builder.bitcast(data, I64.as_pointer())
    return builder.gep(base, [builder.mul(index, ir.Constant(index.type, words))])
