"""Basic blocks of a function, and which registers live between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.gpu.ptx.parse import Address, Function, Instruction, Operand, Unsupported

CARRY = "carry"
"""The carry flag, as a register of one bit."""

_NO_RESULT = {"st", "red", "bra", "ret", "exit", "trap", "call", "bar", "barrier", "membar", "fence"}
_CARRY_IN = {"addc", "subc", "madc"}


@dataclass(frozen=True)
class Jump:
    to: str


@dataclass(frozen=True)
class Branch:
    predicate: str
    negated: bool
    then: str
    otherwise: str


@dataclass(frozen=True)
class Barrier:
    """The thread waits, and goes on at `to`. `warp`: for its warp, not for the block."""

    to: str
    text: str
    number: int
    warp: bool


@dataclass(frozen=True)
class End:
    """Return, or a trap with its text."""

    trap: str | None = None


@dataclass
class Block:
    label: str
    instructions: list[Instruction] = field(default_factory=list)
    end: Jump | Branch | Barrier | End = field(default_factory=End)
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    live_in: set[str] = field(default_factory=set)
    live_out: set[str] = field(default_factory=set)

    def successors(self) -> list[str]:
        match self.end:
            case Jump(to) | Barrier(to):
                return [to]
            case Branch(_, _, then, otherwise):
                return [then, otherwise]
        return []


def registers_in(operand: Operand, function: Function) -> list[str]:
    if isinstance(operand, Address):
        return registers_in(operand.base, function)
    if isinstance(operand, list):
        return [name for part in operand for name in registers_in(part, function)]
    return [operand] if isinstance(operand, str) and operand in function.widths else []


def reads_and_writes(instruction: Instruction, function: Function) -> tuple[list[str], list[str]]:
    first = 0 if instruction.parts[0] in _NO_RESULT else 1
    written = [name for operand in instruction.operands[:first] for name in registers_in(operand, function)]
    read = [name for operand in instruction.operands[first:] for name in registers_in(operand, function)]
    if "cc" in instruction.parts:
        written.append(CARRY)
    if instruction.parts[0] in _CARRY_IN:
        read.append(CARRY)
    return read, written


def blocks_of(function: Function) -> list[Block]:
    """The blocks in order, the first is the entry, with what lives where they meet."""
    blocks = _cut(function)
    for block in blocks:
        for instruction in block.instructions:
            read, written = reads_and_writes(instruction, function)
            block.reads.update(set(read) - block.writes)
            block.writes.update(written)
        if isinstance(block.end, Branch) and block.end.predicate not in block.writes:
            block.reads.add(block.end.predicate)
    by_label = {block.label: block for block in blocks}
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            out: set[str] = set().union(*(by_label[label].live_in for label in block.successors()))
            into = block.reads | (out - block.writes)
            if out != block.live_out or into != block.live_in:
                block.live_out, block.live_in, changed = out, into, True
    return blocks


def _cut(function: Function) -> list[Block]:
    blocks = [Block("start")]
    n_barriers = 0

    def fresh() -> str:
        return f"part{len(blocks)}"

    def open_block(label: str) -> None:
        blocks.append(Block(label))

    for item in [*function.body, "the_end"]:
        if isinstance(item, str):
            blocks[-1].end = Jump(item)
            open_block(item)
            continue
        name, guard = item.parts[0], item.guard
        after = fresh()
        if name == "bra":
            to = item.operands[0]
            if not isinstance(to, str):
                raise Unsupported(item.text)
            blocks[-1].end = Branch(*guard, to, after) if guard else Jump(to)
            open_block(after)
            continue
        if guard:
            inside = after
            after = f"{inside}_after"
            blocks[-1].end = Branch(*guard, inside, after)
            open_block(inside)
        if name in ("ret", "exit"):
            open_block(after)
        elif name == "trap":
            blocks[-1].end = End(item.text)
            open_block(after)
        elif name in ("bar", "barrier"):
            n_barriers += 1
            warp = "warp" in item.parts
            if not warp and ("sync" not in item.parts or item.operands != (0,)):
                raise Unsupported(item.text)
            blocks[-1].end = Barrier(after, item.text, n_barriers, warp)
            open_block(after)
        else:
            blocks[-1].instructions.append(item)
            if guard:
                blocks[-1].end = Jump(after)
                open_block(after)
    return blocks
