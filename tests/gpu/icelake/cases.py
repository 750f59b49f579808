"""`python -m tests.gpu.icelake.cases compile|answer FOLDER`: the operations' machine code, and cases with answers.

One of the two at a time, since PROVEFLEET_IFMA_EMULATED, which `answer` needs, is read when `gpu.field` is imported.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from gpu.curve import affine
from gpu.field import bodies, transfer
from gpu.field.kinds import DIGIT_BITS, FIELDS, LANES, KernelField
from gpu.field.limbs import I64
from gpu.field.lowering import REFS, ROWS, SINGLE, WORDS, Operation, function_of
from gpu.ntt import bodies as ntt

CPU = "icelake-client"
REPEATS = 6
ROWS_GIVEN = LANES * LANES  # references times strides reach so far
POINTS = 24
ADDRESSES = {"open_pair": (1, 2), "close_pair": (1, 2, 4)}
"""Operands that hold references: addresses of points, times two."""
SKIPPED = {
    "prefetch_one": "has no result",
    "reduced": "one element, whatever the lanes",
    "treat_pair": "a part of open_pair",
    "tangent_of_pair": "a part of close_pair",
    "repair_pair": "a part of close_pair",
    "invert_all": "calls a kernel by its address",
    "copy_point": "scalar fields only",
}
Operand = tuple[bytes, bool]
"""Its bytes, and whether they are references into the last operand."""


@dataclass(frozen=True)
class Case:
    function: int
    returns: bool
    integers: list[int]
    operands: list[Operand]

    def packed(self, result: int, after: list[bytes]) -> bytes:
        """As `machine/main.c` reads it: 64-bit words, then for each operand its bytes before and after."""
        out = [self.function, self.returns, result, len(self.integers), *self.integers, len(self.operands)]
        raw = struct.pack(f"<{len(out)}Q", *out)
        for (before, refs), wanted in zip(self.operands, after, strict=True):
            raw += struct.pack("<QQ", len(self.operands) if refs else 0, len(before)) + before + wanted
        return raw


def operations() -> list[Operation]:
    """Every operation of eight lanes that works on pointers alone."""
    found = [*bodies.OPERATIONS.values()]
    for module in (transfer, ntt, affine):
        found += [value for value in vars(module).values() if isinstance(value, Operation)]
    return [each for each in dict.fromkeys(found) if each.name not in SKIPPED]


def functions(module: ir.Module) -> list[tuple[KernelField, Operation, ir.Function]]:
    """Each operation of each field, behind one signature: i64 (i64 **operands, i64 *integers)."""
    out = []
    for kind in FIELDS.values():
        if kind.lanes != LANES:
            continue
        for each in operations():
            if each in vars(ntt).values() and kind.degree > 1:
                continue  # no transform over an extension
            out.append((kind, each, _wrapper(module, function_of(module, each, kind), len(each.strides), len(out))))
    return out


def _wrapper(module: ir.Module, inner: ir.Function, n_pointers: int, number: int) -> ir.Function:
    signature = ir.FunctionType(I64, [I64.as_pointer().as_pointer(), I64.as_pointer()])
    outer = ir.Function(module, signature, f"function_{number}")
    b = ir.IRBuilder(outer.append_basic_block())
    values = []
    for i, kind in enumerate(inner.function_type.args):
        if i < n_pointers:
            values.append(b.bitcast(b.load(b.gep(outer.args[0], [I64(i)])), kind))
        else:
            value = b.load(b.gep(outer.args[1], [I64(i - n_pointers)]))
            values.append(b.trunc(value, kind) if kind.width < 64 else value)
    result = b.call(inner, values)
    if isinstance(result.type, ir.VoidType):
        b.ret(I64(0))
    elif isinstance(result.type, ir.VectorType):
        b.ret(b.zext(b.bitcast(result, ir.IntType(result.type.count)), I64))
    else:
        b.ret(result if result.type.width == 64 else b.zext(result, I64))
    return outer


def compile_to(folder: Path) -> None:
    """operations.o with Ice Lake's instructions, and table.h, which lists its functions."""
    module = ir.Module("operations")
    found = functions(module)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    machine = llvm.Target.from_triple("x86_64-pc-linux-gnu").create_target_machine(cpu=CPU, opt=3, reloc="static")
    (folder / "operations.o").write_bytes(machine.emit_object(parsed))
    lines = [f"extern unsigned long {each.name}(unsigned long **, long *);" for _, _, each in found]
    table = ", ".join(each.name for _, _, each in found)
    names = ", ".join(f'"{op.name} {kind.field.name} {kind.degree}"' for kind, op, _ in found)
    lines.append(f"static unsigned long (*const functions[])(unsigned long **, long *) = {{{table}}};")
    lines.append(f"static const char *const names[] = {{{names}}};")
    (folder / "table.h").write_text("\n".join(lines) + "\n")


def answer_to(folder: Path) -> None:
    """cases.bin: random cases, answered by this CPU with the special instructions written out."""
    module = ir.Module("operations")
    module.triple = llvm.get_process_triple()
    found = functions(module)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    host = llvm.Target.from_default_triple().create_target_machine(opt=1)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), host)
    engine.finalize_object()
    out = []
    for number, (kind, each, function) in enumerate(found):
        run = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)(
            engine.get_function_address(function.name)
        )
        out += [case.packed(*_answer(run, case)) for case in _cases(number, kind, each)]
    (folder / "cases.bin").write_bytes(struct.pack("<Q", len(out)) + b"".join(out))


def _answer(run: Any, case: Case) -> tuple[int, list[bytes]]:
    rooms = [ctypes.create_string_buffer(len(raw) + 64) for raw, _ in case.operands]
    places = [ctypes.addressof(room) + -ctypes.addressof(room) % 64 for room in rooms]
    for place, (raw, refs) in zip(places, case.operands, strict=True):
        if refs:
            words = struct.unpack(f"<{len(raw) // 8}Q", raw)
            raw = struct.pack(f"<{len(words)}Q", *[word + 2 * places[-1] for word in words])
        ctypes.memmove(place, raw, len(raw))
    pointers = (ctypes.c_uint64 * len(places))(*places)
    integers = (ctypes.c_uint64 * 4)(*case.integers)
    result = run(ctypes.addressof(pointers), ctypes.addressof(integers))
    return result, [ctypes.string_at(place, len(raw)) for place, (raw, _) in zip(places, case.operands, strict=True)]


def _cases(number: int, kind: KernelField, each: Operation) -> Iterator[Case]:
    dice = random.Random(f"{number} {each.name}")
    for _ in range(REPEATS):
        operands: list[Operand] = []
        for i, stride in enumerate(each.strides):
            if i in ADDRESSES.get(each.name, ()):
                signs = i < len(each.strides) - 1  # where a result goes, there is no sign
                chosen = dice.sample(range(POINTS), LANES)
                size = 16 * kind.degree * kind.field.limbs
                refs = [2 * size * k + (signs and dice.randrange(2)) for k in chosen]
                operands.append((struct.pack(f"<{LANES}Q", *refs), True))
            elif stride == WORDS:
                operands.append((_canonical(dice, kind, LANES * LANES), False))
            elif stride == ROWS:
                operands.append((_rows(dice, kind), False))
            elif stride == REFS:
                rows = [2 * row + dice.randrange(2) for row in dice.sample(range(LANES), LANES)]
                operands.append((struct.pack(f"<{LANES}I", *rows), False))
            elif stride == SINGLE:
                operands.append((struct.pack("<Q", _lanes_apart(dice)), False))
            else:
                n_blocks = LANES if each.name == "ntt_transpose" else int(stride)
                operands.append((b"".join(_block(dice, kind) for _ in range(n_blocks)), False))
        if each.name in ADDRESSES:
            operands.append((_points(dice, kind), False))
        integers = [dice.randrange(256) if each.name == "select" else dice.choice([1, 2, LANES])] * each.integers
        yield Case(number, each.returns_mask or each.returns_bool, integers, operands)


def _lanes_apart(dice: random.Random) -> int:
    """A mask for each case of `open_pair`, no two of which name the same lane; often no case at all."""
    owners = [dice.randrange(6) for _ in range(LANES)] if dice.randrange(2) else []
    return sum(1 << (LANES * owner + lane) for lane, owner in enumerate(owners) if owner < len(affine._CASES))


def _value(dice: random.Random, kind: KernelField) -> int:
    p = kind.field.modulus
    return dice.choice([0, 1, p - 1, p - 2, dice.randrange(p), dice.randrange(p), dice.randrange(p)])


def _block(dice: random.Random, kind: KernelField) -> bytes:
    words = []
    for _ in range(kind.degree):
        lanes = [_value(dice, kind) for _ in range(LANES)]
        words += [lane >> DIGIT_BITS * k & (1 << DIGIT_BITS) - 1 for k in range(kind.limbs) for lane in lanes]
    return struct.pack(f"<{len(words)}Q", *words)


def _rows(dice: random.Random, kind: KernelField) -> bytes:
    words = []
    for _ in range(ROWS_GIVEN * kind.degree):
        value = _value(dice, kind)
        words += [value >> DIGIT_BITS * k & (1 << DIGIT_BITS) - 1 for k in range(LANES)]
    return struct.pack(f"<{len(words)}Q", *words)


def _canonical(dice: random.Random, kind: KernelField, count: int) -> bytes:
    return b"".join(_value(dice, kind).to_bytes(kind.field.n_bytes, "little") for _ in range(count * kind.degree))


def _points(dice: random.Random, kind: KernelField) -> bytes:
    """Coordinates of points, some of them infinite, some of them the same twice."""
    size = 2 * kind.degree * kind.field.n_bytes
    out = [_canonical(dice, kind, 2) for _ in range(POINTS - 6)] + [bytes(size)] * 2
    out += [dice.choice(out) for _ in range(4)]
    dice.shuffle(out)
    return b"".join(out)


if __name__ == "__main__":
    {"compile": compile_to, "answer": answer_to}[sys.argv[1]](Path(sys.argv[2]))
