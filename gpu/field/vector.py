"""Vectors of eight 64-bit words in LLVM IR: the special instructions of the IFMA back end, and transposes.

Each special instruction is emitted in one place and has two forms: the intrinsic, or, for tests on a CPU
without AVX-512, a function of ordinary vector arithmetic with the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from gpu.field import isa
from gpu.field.kinds import DIGIT_BITS, LANES
from gpu.field.limbs import I64

VECTOR = ir.VectorType(I64, LANES)
MASK = ir.VectorType(ir.IntType(1), LANES)
_I8 = ir.IntType(8)
_I32 = ir.IntType(32)
_WIDE = ir.VectorType(ir.IntType(128), LANES)
DIGIT = (1 << DIGIT_BITS) - 1


def splat(value: int) -> Any:
    """The same constant in every lane; negative values in two's complement."""
    return vector([value] * LANES)


def spread(b: ir.IRBuilder, word: Any) -> Any:
    """A word in every lane."""
    undefined = ir.Constant(VECTOR, ir.Undefined)
    return b.shuffle_vector(b.insert_element(undefined, word, _I32(0)), undefined, _selection([0] * LANES))


def vector(values: Sequence[int]) -> Any:
    """A constant for each lane."""
    return ir.Constant(VECTOR, [ir.Constant(I64, value & (2**64 - 1)) for value in values])


ZERO = splat(0)


def madd_low(b: ir.IRBuilder, total: Any, x: Any, y: Any) -> Any:
    """total + the low 52 bits of x*y, in each lane; of x and y the low 52 bits count (vpmadd52luq)."""
    return _special(b, "llvm.x86.avx512.vpmadd52l.uq.512", _emulate_low, total, x, y)


def madd_high(b: ir.IRBuilder, total: Any, x: Any, y: Any) -> Any:
    """total + bits 52..103 of x*y, in each lane; of x and y the low 52 bits count (vpmadd52huq)."""
    return _special(b, "llvm.x86.avx512.vpmadd52h.uq.512", _emulate_high, total, x, y)


def lookup(b: ir.IRBuilder, table: Any, index: Any) -> Any:
    """table[index] in each lane; of the index the low three bits count (vpermq)."""
    return _special(b, "llvm.x86.avx512.permvar.di.512", _emulate_lookup, table, index)


def carry(b: ir.IRBuilder, x: Any) -> Any:
    """x >> 52, keeping the sign: what a limb hands to the next one."""
    return b.ashr(x, splat(DIGIT_BITS))


def mask_bits(b: ir.IRBuilder, mask: Any) -> Any:
    """A mask as an i64, one bit a lane."""
    return b.zext(b.bitcast(mask, _I8), I64)


def bits_mask(b: ir.IRBuilder, bits: Any) -> Any:
    """The low eight bits of an i64 as a mask."""
    return b.bitcast(b.trunc(bits, _I8), MASK)


def load(b: ir.IRBuilder, pointer: Any, index: int = 0) -> Any:
    """Eight words at pointer[8 * index]; any alignment of words, but only 64 bytes are fast."""
    value = b.load(_at(b, pointer, index))
    value.align = 8
    return value


def store(b: ir.IRBuilder, value: Any, pointer: Any, index: int = 0) -> None:
    b.store(value, _at(b, pointer, index)).align = 8


def load_words(b: ir.IRBuilder, pointer: Any, count: int) -> Any:
    """`count` words (4 or 6) from anywhere, the rest of the vector undefined."""
    four = ir.VectorType(I64, 4)
    low = b.load(b.bitcast(pointer, four.as_pointer()))
    low.align = 1
    if count == 4:
        return b.shuffle_vector(low, ir.Constant(four, ir.Undefined), _selection([0, 1, 2, 3, 4, 4, 4, 4]))
    two = ir.VectorType(I64, 2)
    high = b.load(b.bitcast(b.gep(pointer, [ir.Constant(I64, 4)]), two.as_pointer()))
    high.align = 1
    wide = b.shuffle_vector(high, ir.Constant(two, ir.Undefined), _selection([0, 1, 2, 2]))
    return b.shuffle_vector(low, wide, _selection([0, 1, 2, 3, 4, 5, 6, 7]))


def store_words(b: ir.IRBuilder, value: Any, pointer: Any, count: int) -> None:
    """The first `count` words (4 or 6) to anywhere."""
    four = ir.VectorType(I64, 4)
    b.store(b.shuffle_vector(value, value, _selection([0, 1, 2, 3])), b.bitcast(pointer, four.as_pointer())).align = 1
    if count == 6:
        two = ir.VectorType(I64, 2)
        target = b.bitcast(b.gep(pointer, [ir.Constant(I64, 4)]), two.as_pointer())
        b.store(b.shuffle_vector(value, value, _selection([4, 5])), target).align = 1


def transpose(b: ir.IRBuilder, rows: Sequence[Any]) -> list[Any]:
    """Eight rows of eight words to eight columns: three rounds of two-source shuffles."""
    out = list(rows)
    for step in (1, 2, 4):
        low = [i + LANES - step if i & step else i for i in range(LANES)]
        high = [i + LANES if i & step else i + step for i in range(LANES)]
        following = list(out)
        for i in range(LANES):
            if not i & step:
                following[i] = b.shuffle_vector(out[i], out[i + step], _selection(low))
                following[i + step] = b.shuffle_vector(out[i], out[i + step], _selection(high))
        out = following
    return out


def _at(b: ir.IRBuilder, pointer: Any, index: int) -> Any:
    return b.bitcast(b.gep(pointer, [ir.Constant(I64, LANES * index)]), VECTOR.as_pointer())


def _selection(lanes: Sequence[int]) -> Any:
    return ir.Constant(ir.VectorType(_I32, len(lanes)), [ir.Constant(_I32, lane) for lane in lanes])


def _special(b: ir.IRBuilder, name: str, emulate: Callable[..., Any], *args: Any) -> Any:
    """A call of the intrinsic, or of a function in this module that does the same with ordinary instructions."""
    if isa.emulated():
        name = "provefleet_emulated_" + name.rsplit(".avx512.", 1)[1].replace(".", "_")
    module = b.module
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(VECTOR, [VECTOR] * len(args)), name)
        if isa.emulated():
            function.linkage = "linkonce_odr"
            function.attributes.add("noinline")
            body = ir.IRBuilder(function.append_basic_block())
            body.ret(emulate(body, *function.args))
    return b.call(function, args)


def _emulate_low(b: ir.IRBuilder, total: Any, x: Any, y: Any) -> Any:
    return b.add(total, b.and_(b.mul(x, y), splat(DIGIT)))


def _emulate_high(b: ir.IRBuilder, total: Any, x: Any, y: Any) -> Any:
    x, y = (b.zext(b.and_(side, splat(DIGIT)), _WIDE) for side in (x, y))
    shift = ir.Constant(_WIDE, [ir.Constant(_WIDE.element, DIGIT_BITS)] * LANES)
    return b.add(total, b.trunc(b.lshr(b.mul(x, y), shift), VECTOR))


def _emulate_lookup(b: ir.IRBuilder, table: Any, index: Any) -> Any:
    out = ZERO
    for lane in range(LANES):
        place = ir.Constant(_I32, lane)
        wanted = b.and_(b.extract_element(index, place), ir.Constant(I64, LANES - 1))
        out = b.insert_element(out, b.extract_element(table, wanted), place)
    return out
