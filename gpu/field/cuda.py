"""Field operations inside CUDA kernels: intrinsics of numba.cuda that emit the blocks of `ptx`.

An element is a value, a tuple of uint32: the limbs of `ptx`, for degree 2 (Fp[u]/(u^2 + 1)) those of c0, then of
c1. The first argument names the field by its *type* and takes no room: kernels have it as their first parameter,
`gpu.cuda.registry` says which field types to compile them for, and a launch passes nothing for it.

    @kernel("mul_pairs", "ppp", fields=lambda curve: [field_type(curve.fr)], max_threads=256)
    def mul_pairs(F, out, a, b):
        i = cuda.grid(1)
        store(F, out, i, mul(F, load(F, a, i), load(F, b, i)))

    mul(F, a, b)  sqr(F, a)  add(F, a, b)  sub(F, a, b)  neg(F, a)  double(F, a)
    mul2add(F, a, b, c, d)              a b + c d, with one reduction
    zero(F)  one(F)  is_zero(F, a)  equal(F, a, b)  select(F, condition, a, b)
    from_montgomery(F, a)               the plain value, as limbs
    load(F, pointer, index)             pointer: to uint32, aligned to 16 bytes; index: in elements
    store(F, pointer, index, value)
    load_tile(F, shared, index, stride)         from a shared array of uint32, limb k at [k * stride + index]
    store_tile(F, shared, index, stride, value)
    atomic_add(pointer, index, value)   of uint32, in device memory; the old value

Every result is reduced. In a field type made with `cold=True` products are calls of one function instead of inline:
a tenth slower, but small code that compiles fast. Device functions (`@cuda.jit(device=True)`) may take and return
elements. Only building and testing import this module: it needs numba-cuda.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import core_models, register_model
from numba.cuda.extending import intrinsic as _numba_intrinsic

from gpu.field import ptx
from gpu.field.cuda_lowering import I32, Emitter, FieldType, Limbs, join, split
from gpu.field.params import Field

I64 = ir.IntType(64)
FOUR = ir.VectorType(I32, 4)

# Kernels call an intrinsic without its first parameter, which a type checker can't know.
intrinsic: Any = _numba_intrinsic


@register_model(FieldType)
class _Nothing(core_models.StructModel):
    def __init__(self, manager: Any, kind: FieldType) -> None:
        super().__init__(manager, kind, [])


def field_type(field: Field, degree: int = 1, cold: bool = False) -> FieldType:
    """The type to compile a kernel for."""
    return FieldType(field, degree, cold)


def _operation(kind: FieldType, arity: int, emit: Callable[..., list[Limbs]]) -> tuple[Any, Callable[..., Any]]:
    """Signature and code generator of an intrinsic from `arity` elements to one."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        operands = [split(kind, _limbs(builder, kind, value)) for value in args[1:]]
        return _element(context, builder, kind, join(emit(Emitter(builder, kind), *operands)))

    return kind.element(kind, *[kind.element] * arity), generate


def _limbs(builder: ir.IRBuilder, kind: FieldType, value: Any) -> Limbs:
    return [builder.extract_value(value, i) for i in range(kind.element.count)]


def _element(context: Any, builder: ir.IRBuilder, kind: FieldType, limbs: Limbs) -> Any:
    return context.make_tuple(builder, kind.element, limbs)


def _wide(builder: ir.IRBuilder, index: Any, index_type: Any) -> Any:
    """An index of any integer type as i64."""
    if index_type.bitwidth == 64:
        return index
    return builder.sext(index, I64) if index_type.signed else builder.zext(index, I64)


@intrinsic
def mul(typingctx, F, a, b):
    return _operation(F, 2, lambda emitter, x, y: emitter.call("mul", x, y))


@intrinsic
def sqr(typingctx, F, a):
    return _operation(F, 1, lambda emitter, x: emitter.call("sqr", x))


@intrinsic
def mul2add(typingctx, F, a, b, c, d):
    return _operation(F, 4, lambda emitter, *operands: emitter.call("mul2add", *operands))


@intrinsic
def from_montgomery(typingctx, F, a):
    return _operation(F, 1, lambda emitter, x: emitter.call("from_montgomery", x))


@intrinsic
def add(typingctx, F, a, b):
    return _operation(F, 2, lambda emitter, x, y: emitter.limbwise(ptx.add, x, y))


@intrinsic
def sub(typingctx, F, a, b):
    return _operation(F, 2, lambda emitter, x, y: emitter.limbwise(ptx.sub, x, y))


@intrinsic
def neg(typingctx, F, a):
    return _operation(F, 1, lambda emitter, x: emitter.limbwise(ptx.neg, x))


@intrinsic
def double(typingctx, F, a):
    return _operation(F, 1, lambda emitter, x: emitter.limbwise(ptx.add, x, x))


def _constant(kind: FieldType, value: int) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        n = kind.element.count
        return _element(context, builder, kind, [ir.Constant(I32, value >> (32 * i) & 0xFFFFFFFF) for i in range(n)])

    return kind.element(kind), generate


@intrinsic
def zero(typingctx, F):
    return _constant(F, 0)


@intrinsic
def one(typingctx, F):
    return _constant(F, F.field.r)


def _test(kind: FieldType, arity: int) -> tuple[Any, Callable[..., Any]]:
    """Whether an element is zero, or two are equal."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        operands = [_limbs(builder, kind, value) for value in args[1:]]
        union = ir.Constant(I32, 0)
        for limbs in zip(*operands, strict=True):
            union = builder.or_(union, builder.xor(*limbs) if arity == 2 else limbs[0])
        return builder.icmp_unsigned("==", union, ir.Constant(I32, 0))

    return types.boolean(kind, *[kind.element] * arity), generate


@intrinsic
def is_zero(typingctx, F, a):
    return _test(F, 1)


@intrinsic
def equal(typingctx, F, a, b):
    return _test(F, 2)


@intrinsic
def select(typingctx, F, condition, a, b):
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        x, y = (_limbs(builder, F, value) for value in args[2:])
        chosen = [builder.select(args[1], left, right) for left, right in zip(x, y, strict=True)]
        return _element(context, builder, F, chosen)

    return F.element(F, types.boolean, F.element, F.element), generate


def _quads(builder: ir.IRBuilder, kind: FieldType, pointer: Any, index: Any, index_type: Any) -> list[Any]:
    """Pointers to the element's groups of four limbs."""
    quads = kind.element.count // 4
    first = builder.mul(_wide(builder, index, index_type), ir.Constant(I64, quads))
    base = builder.bitcast(pointer, FOUR.as_pointer())
    return [
        builder.gep(base, [builder.add(first, ir.Constant(I64, i))], inbounds=True, source_etype=FOUR)
        for i in range(quads)
    ]


@intrinsic
def load(typingctx, F, pointer, index):
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        limbs = []
        for quad in _quads(builder, F, args[1], args[2], index):
            four = builder.load(quad, typ=FOUR, align=16)
            limbs += [builder.extract_element(four, ir.Constant(I32, i)) for i in range(4)]
        return _element(context, builder, F, limbs)

    return F.element(F, pointer, index), generate


@intrinsic
def store(typingctx, F, pointer, index, value):
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        limbs = _limbs(builder, F, args[3])
        for k, quad in enumerate(_quads(builder, F, args[1], args[2], index)):
            four: Any = ir.Constant(FOUR, ir.Undefined)
            for i in range(4):
                four = builder.insert_element(four, limbs[4 * k + i], ir.Constant(I32, i))
            builder.store(four, quad, align=16)
        return context.get_dummy_value()

    return types.void(F, pointer, index, F.element), generate


def _tile(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> list[Any]:
    """Pointers to the limbs of an element in a shared array."""
    kind, shared = signature.args[:2]
    data = context.make_array(shared)(context, builder, args[1]).data
    index, stride = (builder.trunc(value, I32) if value.type.width > 32 else value for value in (args[2], args[3]))
    out = []
    for _ in range(kind.element.count):
        out.append(builder.gep(data, [builder.zext(index, I64)], inbounds=True))
        index = builder.add(index, stride)
    return out


@intrinsic
def load_tile(typingctx, F, shared, index, stride):
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        return _element(context, builder, F, [builder.load(p) for p in _tile(context, builder, signature, args)])

    return F.element(F, shared, index, stride), generate


@intrinsic
def store_tile(typingctx, F, shared, index, stride, value):
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        pointers = _tile(context, builder, signature, args)
        for limb, pointer in zip(_limbs(builder, F, args[4]), pointers, strict=True):
            builder.store(limb, pointer)
        return context.get_dummy_value()

    return types.void(F, shared, index, stride, F.element), generate


@intrinsic
def atomic_add(typingctx, pointer, index, value):
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        place = builder.gep(args[0], [_wide(builder, args[1], index)], inbounds=True)
        return builder.atomic_rmw("add", place, args[2], "monotonic")

    return types.uint32(pointer, index, types.uint32), generate
