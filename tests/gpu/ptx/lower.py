"""A function of PTX as LLVM text: one LLVM function that runs one thread up to its end or its next barrier.

It takes `%launch` and `%thread`, arrays of 64-bit slots (below), for a called function also where its result and its
arguments lie, and returns DONE, FAILED, or the number of the barrier where the thread waits. Registers are LLVM values
inside a block and stack slots between blocks; those that live across a barrier are saved in the thread's slots.
Addresses of all spaces are the host's own. Every access is checked against the ranges that the thread may touch.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.gpu.ptx.flow import CARRY, Barrier, Block, Branch, End, Jump, blocks_of, registers_in
from tests.gpu.ptx.operations import ARITHMETIC, SIMPLE, Emitter, arithmetic, operand_widths, result_width
from tests.gpu.ptx.parse import WIDTHS, Address, Function, Instruction, Operand, Unsupported, Variable

DONE, FAILED = -1, -2

# Slots of a launch: where parameters and shared memory lie, the table of ranges, sizes, the block; then the
# addresses of module variables.
PARAMS, SHARED, RANGES, N_RANGES, BLOCK_SIZE, GRID_SIZE, BLOCK, VARIABLES = range(8)
# Slots of a thread: its state, its number, what failed (address, size, number of the text), where its local memory
# begins and ends; then registers.
STATE, THREAD, BAD_ADDRESS, BAD_SIZE, BAD_TEXT, LOCAL, LOCAL_END, SAVED = range(8)

_SPECIAL = {"%tid.x": "tid", "%ntid.x": "ntid", "%ctaid.x": "ctaid", "%nctaid.x": "nctaid", "%laneid": "laneid"}
_ZERO_BASED = {f"%{name}.{axis}": value for name, value in (("tid", 0), ("ctaid", 0), ("ntid", 1), ("nctaid", 1))
               for axis in "yz"}  # fmt: skip
_ATOMIC = {"add": "add", "and": "and", "or": "or", "xor": "xor", "exch": "xchg"}
_SPACES = ("global", "shared", "local", "const", "param")
_HINTS = {"volatile", "relaxed", "gpu", "cta", "sys", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "L1", "global"}


@dataclass(frozen=True)
class Layout:
    """Where variables lie: offsets in a block's shared memory and in a thread's local memory, launch slots of
    others."""

    shared: dict[str, int]
    local: dict[str, int]
    slots: dict[str, int]
    functions: dict[str, Function]


class FunctionText:
    """`text` is the LLVM function; `n_saved` how many registers a thread's slots must hold; `messages` what its
    accesses are, by number.
    """

    def __init__(self, function: Function, layout: Layout, messages: list[str]) -> None:
        self._function, self._layout, self._messages = function, layout, messages
        self._e = Emitter()
        self._values: dict[str, str] = {}
        self._changed: set[str] = set()
        self._n_checks = 0
        self.barriers: list[Barrier] = []
        self.n_saved = 0
        self.text = self._write()

    def _write(self) -> str:
        function = self._function
        blocks = blocks_of(function)
        crossing = sorted(set().union(*(block.live_in | block.live_out for block in blocks)))
        self._slot = {name: f"%slot{i}" for i, name in enumerate(crossing)}
        for block in blocks:
            self._block(block)
        body = self._e.lines
        head = Emitter()
        head.lines.append(f"define i32 @{quoted(function.name)}({', '.join(self._parameters())}) {{")
        head.lines.append("entry:")
        for name, slot in self._slot.items():
            head.lines.append(f"  {slot} = alloca i{self._width(name)}")
        for variable in function.variables:
            if variable.space == "param":
                head.lines.append(f"  {_parameter(variable.name)} = alloca [{variable.size} x i8], align 16")
        slots = {"tid": ("thread", THREAD), "ntid": ("launch", BLOCK_SIZE)}
        slots |= {"nctaid": ("launch", GRID_SIZE), "ctaid": ("launch", BLOCK)}
        for name, (base, index) in slots.items():
            head.lines.append(f"  %at_{name} = getelementptr i64, ptr %{base}, i64 {index}")
            head.lines.append(f"  %wide_{name} = load i64, ptr %at_{name}")
            head.lines.append(f"  %{name} = trunc i64 %wide_{name} to i32")
        head.lines.append("  %laneid = and i32 %tid, 31")
        head.lines += self._resumption(blocks)
        return "\n".join([*head.lines, *body, "}"])

    def _parameters(self) -> list[str]:
        names = ["%launch", "%thread"]
        if not self._function.is_kernel:
            names += [_parameter(variable.name) for variable in self._function.returns + self._function.params]
        return [f"ptr {name}" for name in names]

    def _resumption(self, blocks: list[Block]) -> list[str]:
        """Goes on where the thread had stopped, with the registers that it had."""
        if not self.barriers:
            return ["  br label %b_start"]
        by_label = {block.label: block for block in blocks}
        lines = ["  %at_state = getelementptr i64, ptr %thread, i64 0", "  %state = load i64, ptr %at_state"]
        cases = " ".join(f"i64 {barrier.number}, label %resume{barrier.number}" for barrier in self.barriers)
        lines.append(f"  switch i64 %state, label %b_start [ {cases} ]")
        for barrier in self.barriers:
            lines.append(f"resume{barrier.number}:")
            for k, name in enumerate(sorted(by_label[barrier.to].live_in)):
                word = f"%back{barrier.number}_{k}"
                lines.append(f"  {word}_at = getelementptr i64, ptr %thread, i64 {SAVED + k}")
                lines.append(f"  {word} = load i{self._width(name)}, ptr {word}_at")
                lines.append(f"  store i{self._width(name)} {word}, ptr {self._slot[name]}")
            lines.append(f"  br label %{_label(barrier.to)}")
        return lines

    def _width(self, name: str) -> int:
        return 1 if name == CARRY else self._function.widths[name]

    def _block(self, block: Block) -> None:
        self._values, self._changed = {}, set()
        self._e.lines.append(f"{_label(block.label)}:")
        for instruction in block.instructions:
            self._instruction(instruction)
        predicate = self._read(block.end.predicate, 1) if isinstance(block.end, Branch) else ""
        lines = self._e.lines
        match block.end:
            case Jump(to):
                self._flush(block)
                lines.append(f"  br label %{_label(to)}")
            case Branch(_, negated, then, otherwise):
                self._flush(block)
                first, second = (otherwise, then) if negated else (then, otherwise)
                lines.append(f"  br i1 {predicate}, label %{_label(first)}, label %{_label(second)}")
            case Barrier():
                self._wait(block.end, block.live_out)
            case End(None):
                lines.append(f"  ret i32 {DONE}")
            case End(trap):
                self._fail("0", 0, str(trap))

    def _flush(self, block: Block) -> None:
        for name in sorted(self._changed & block.live_out):
            self._e.lines.append(f"  store i{self._width(name)} {self._values[name]}, ptr {self._slot[name]}")

    def _wait(self, barrier: Barrier, live: set[str]) -> None:
        if not self._function.is_kernel:
            raise Unsupported(f"{self._function.name}: {barrier.text} in a called function")
        self.barriers.append(barrier)
        for k, name in enumerate(sorted(live)):
            value = self._value_of(name)
            place = self._e.value(f"getelementptr i64, ptr %thread, i64 {SAVED + k}")
            self._e.lines.append(f"  store i{self._width(name)} {value}, ptr {place}")
        self.n_saved = max(self.n_saved, len(live))
        self._e.lines.append(f"  ret i32 {barrier.number}")

    def _value_of(self, name: str) -> str:
        if name not in self._values:
            if name not in self._slot:
                raise Unsupported(f"{self._function.name}: {name} is read before it is written")
            self._values[name] = self._e.value(f"load i{self._width(name)}, ptr {self._slot[name]}")
        return self._values[name]

    def _read(self, operand: Operand, width: int) -> str:
        if isinstance(operand, int):
            return str(operand) if width > 1 else ("true" if operand else "false")
        if not isinstance(operand, str):
            raise Unsupported(f"{self._function.name}: operand {operand}")
        if operand in self._function.widths:
            return self._e.resize(self._value_of(operand), self._width(operand), width)
        if operand in _SPECIAL:
            return self._e.resize(f"%{_SPECIAL[operand]}", 32, width)
        if operand in _ZERO_BASED:
            return str(_ZERO_BASED[operand])
        if operand == "WARP_SZ":
            return "32"
        if width == 64:
            return self._address_of(operand)
        raise Unsupported(f"{self._function.name}: operand {operand}")

    def _write_register(self, operand: Operand, value: str, width: int, signed: bool = False) -> None:
        if not isinstance(operand, str) or operand not in self._function.widths:
            raise Unsupported(f"{self._function.name}: result {operand}")
        self._values[operand] = self._e.resize(value, width, self._width(operand), signed)
        self._changed.add(operand)

    def _address_of(self, variable: str) -> str:
        layout = self._layout
        if variable in layout.shared:
            base, offset = self._slot_value("launch", SHARED), layout.shared[variable]
        elif (local := f"{self._function.name}/{variable}") in layout.local:
            base, offset = self._slot_value("thread", LOCAL), layout.local[local]
        elif variable in layout.slots:
            base, offset = self._slot_value("launch", VARIABLES + layout.slots[variable]), 0
        else:
            raise Unsupported(f"{self._function.name}: unknown name {variable}")
        return self._e.binary("add", 64, base, str(offset)) if offset else base

    def _slot_value(self, base: str, index: int) -> str:
        return self._e.value(f"load i64, ptr {self._e.value(f'getelementptr i64, ptr %{base}, i64 {index}')}")

    def _instruction(self, i: Instruction) -> None:
        name = i.parts[0]
        if name in ("ld", "st", "atom", "red"):
            self._memory(i)
        elif name == "call":
            self._call(i)
        elif name == "mov":
            self._mov(i)
        elif name in ("cvt", "cvta"):
            self._convert(i)
        elif name in ("membar", "fence"):
            return  # threads run one after the other
        elif i.type not in WIDTHS:
            raise Unsupported(i.text)
        elif name in ARITHMETIC or name in SIMPLE:
            target, *sources = i.operands
            values = [
                self._read(source, width)
                for source, width in zip(sources, operand_widths(i, len(sources)), strict=True)
            ]
            if name in ARITHMETIC:
                carry = self._value_of(CARRY) if name in ("addc", "subc", "madc") else ""
                result, flag = arithmetic(self._e, i, values, carry)
                if flag is not None:
                    self._values[CARRY] = flag
                    self._changed.add(CARRY)
            else:
                result = SIMPLE[name](self._e, i, values)
            self._write_register(target, result, result_width(i))
        else:
            raise Unsupported(i.text)

    def _mov(self, i: Instruction) -> None:
        target, source = i.operands
        width = WIDTHS[i.type]
        if isinstance(target, list):
            each = width // len(target)
            value = self._read(source, width)
            for k, part in enumerate(target):
                shifted = self._e.binary("lshr", width, value, str(each * k))
                if part != "_":
                    self._write_register(part, self._e.resize(shifted, width, each), each)
        elif isinstance(source, list):
            each, total = width // len(source), "0"
            for k, part in enumerate(source):
                wide = self._e.resize(self._read(part, each), each, width)
                total = self._e.binary("or", width, total, self._e.binary("shl", width, wide, str(each * k)))
            self._write_register(target, total, width)
        else:
            self._write_register(target, self._read(source, width), width)

    def _convert(self, i: Instruction) -> None:
        target, source = i.operands
        if i.parts[0] == "cvta":
            self._write_register(target, self._read(source, 64), 64)
            return
        if len(i.parts) != 3 or i.parts[1] not in WIDTHS or i.parts[2] not in WIDTHS:
            raise Unsupported(i.text)
        into, of = WIDTHS[i.parts[1]], WIDTHS[i.parts[2]]
        value = self._e.resize(self._read(source, of), of, into, i.parts[2].startswith("s"))
        self._write_register(target, value, into, i.parts[1].startswith("s"))

    def _memory(self, i: Instruction) -> None:
        name = i.parts[0]
        if i.type not in WIDTHS:
            raise Unsupported(i.text)
        width = WIDTHS[i.type]
        space = next((part for part in i.parts[1:] if part in _SPACES), "generic")
        vector = next((int(part[1]) for part in i.parts if part in ("v2", "v4")), 1)
        known = {name, space, i.type, f"v{vector}", *_HINTS, *_ATOMIC, "min", "max", "cas"}
        if set(i.parts) - known:
            raise Unsupported(i.text)
        if name in ("atom", "red"):
            self._atomic(i, width, space)
            return
        where = i.operands[1 if name == "ld" else 0]
        pointer = self._pointer(i, where, space, width // 8 * vector)
        other = i.operands[0 if name == "ld" else 1]
        parts = other if isinstance(other, list) else [other]
        for k, part in enumerate(parts):
            place = pointer
            if k:
                place = self._e.value(f"getelementptr i8, ptr {pointer}, i64 {width // 8 * k}")
            if name == "ld":
                loaded = self._e.value(f"load i{width}, ptr {place}, align 1")
                self._write_register(part, loaded, width, i.type.startswith("s"))
            else:
                self._e.lines.append(f"  store i{width} {self._read(part, width)}, ptr {place}, align 1")

    def _atomic(self, i: Instruction, width: int, space: str) -> None:
        operands = i.operands if i.parts[0] == "atom" else ("_", *i.operands)
        pointer = self._pointer(i, operands[1], space, width // 8)
        values = [self._read(operand, width) for operand in operands[2:]]
        operation = next(part for part in i.parts if part in _ATOMIC or part in ("min", "max", "cas"))
        if operation == "cas":
            pair = self._e.value(
                f"cmpxchg ptr {pointer}, i{width} {values[0]}, i{width} {values[1]} monotonic monotonic"
            )
            old = self._e.value(f"extractvalue {{ i{width}, i1 }} {pair}, 0")
        else:
            llvm = _ATOMIC.get(operation) or ("" if i.type.startswith("s") else "u") + operation
            old = self._e.value(f"atomicrmw {llvm} ptr {pointer}, i{width} {values[0]} monotonic")
        if operands[0] != "_":
            self._write_register(operands[0], old, width)

    def _pointer(self, i: Instruction, where: Operand, space: str, size: int) -> str:
        """A checked pointer to `size` bytes."""
        if not isinstance(where, Address):
            raise Unsupported(i.text)
        if space == "param":
            return self._parameter_pointer(where)
        if registers_in(where.base, self._function) and self._width(where.base) != 64:
            raise Unsupported(i.text)
        address = self._read(where.base, 64)
        if where.offset:
            address = self._e.binary("add", 64, address, str(where.offset))
        self._n_checks += 1
        good, bad = f"good{self._n_checks}", f"bad{self._n_checks}"
        verdict = self._e.value(f"call i1 @may_access(ptr %launch, ptr %thread, i64 {address}, i64 {size})")
        self._e.lines += [f"  br i1 {verdict}, label %{good}, label %{bad}", f"{bad}:"]
        self._fail(address, size, i.text)
        self._e.lines.append(f"{good}:")
        return self._e.value(f"inttoptr i64 {address} to ptr")

    def _parameter_pointer(self, where: Address) -> str:
        names = [variable.name for variable in self._function.params]
        if self._function.is_kernel and where.base in names:
            base = self._e.value(f"inttoptr i64 {self._slot_value('launch', PARAMS)} to ptr")
            offset = 8 * names.index(where.base) + where.offset
        else:
            base, offset = _parameter(where.base), where.offset
        return self._e.value(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _call(self, i: Instruction) -> None:
        lists = [[o] if isinstance(o, str) else o for o in i.operands]
        returned, name, arguments = lists if len(lists) == 3 else ([], *lists, *[[]] * (2 - len(lists)))
        callee = str(name[0])
        if callee not in self._layout.functions:
            raise Unsupported(i.text)
        pointers = ["%launch", "%thread", *(_parameter(str(variable)) for variable in [*returned, *arguments])]
        status = self._e.value(f"call i32 @{quoted(callee)}({', '.join(f'ptr {p}' for p in pointers)})")
        self._n_checks += 1
        failed = self._e.compare("eq", 32, status, str(FAILED))
        self._e.lines += [
            f"  br i1 {failed}, label %bad{self._n_checks}, label %good{self._n_checks}",
            f"bad{self._n_checks}:",
            f"  ret i32 {FAILED}",
            f"good{self._n_checks}:",
        ]

    def _fail(self, address: str, size: int, text: str) -> None:
        self._messages.append(text)
        for index, value in ((BAD_ADDRESS, address), (BAD_SIZE, str(size)), (BAD_TEXT, str(len(self._messages) - 1))):
            place = self._e.value(f"getelementptr i64, ptr %thread, i64 {index}")
            self._e.lines.append(f"  store i64 {value}, ptr {place}")
        self._e.lines.append(f"  ret i32 {FAILED}")


def variables_of(functions: list[Function], space: str) -> list[tuple[str, Variable]]:
    """The variables that functions declare, with the function's name."""
    return [(f.name, variable) for f in functions for variable in f.variables if variable.space == space]


def _label(label: str) -> str:
    return "b_" + label.replace("$", "_")


def _parameter(name: str) -> str:
    return f'%"p_{name}"'


def quoted(name: str) -> str:
    return f'"ptx_{name}"'
