"""LLVM text of PTX's integer instructions: from operand values to the result, width by width."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.gpu.ptx.parse import WIDTHS, Instruction, Unsupported

_PREDICATES = {"eq": "eq", "ne": "ne", "lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
_ORDERED = ("lt", "le", "gt", "ge")
_IGNORED = {"uni", "wrap", "rn"}


class Emitter:
    """Writes instructions that make new values. A value is LLVM text: a name or a constant."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def value(self, text: str) -> str:
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def resize(self, value: str, have: int, want: int, signed: bool = False) -> str:
        if have == want:
            return value
        word = "trunc" if have > want else "sext" if signed else "zext"
        return self.value(f"{word} i{have} {value} to i{want}")

    def call(self, name: str, width: int, *values: str) -> str:
        arguments = ", ".join(f"i{width} {value}" for value in values)
        flag = ", i1 false" if name in ("ctlz", "cttz") else ""
        return self.value(f"call i{width} @llvm.{name}.i{width}({arguments}{flag})")

    def binary(self, operation: str, width: int, left: str, right: str) -> str:
        return self.value(f"{operation} i{width} {left}, {right}")

    def compare(self, test: str, width: int, left: str, right: str) -> str:
        return self.value(f"icmp {test} i{width} {left}, {right}")

    def select(self, condition: str, width: int, left: str, right: str) -> str:
        return self.value(f"select i1 {condition}, i{width} {left}, i{width} {right}")


def signed(instruction: Instruction) -> bool:
    return instruction.type.startswith("s")


def arithmetic(e: Emitter, i: Instruction, x: Sequence[str], carry: str) -> tuple[str, str | None]:
    """The result of add, sub, mul, mad and their carrying forms, and the carry flag where it is set.

    Carrying forms are 32 bits wide here: they are summed in 64 bits, where nothing is lost.
    """
    name, w = i.parts[0], WIDTHS[i.type]
    carrying = "cc" in i.parts or name in ("addc", "subc", "madc")
    if carrying and w != 32:
        raise Unsupported(i.text)
    if name in ("mul", "mad") and not carrying:
        product, width = _product(e, i, x, w)
        return (e.binary("add", width, product, x[2]) if name == "mad" else product), None
    wide = [e.resize(value, w, 64) for value in x] if carrying else list(x)
    if name in ("mad", "madc"):
        product = e.binary("mul", 64, wide[0], wide[1])
        half = e.binary("lshr", 64, product, "32") if "hi" in i.parts else e.binary("and", 64, product, "4294967295")
        wide, name = [half, wide[2]], name.replace("mad", "add")
    if not carrying:
        return e.binary(name, w, wide[0], wide[1]), None
    operation = name[:3]
    total = e.binary(operation, 64, wide[0], wide[1])
    if name.endswith("c"):
        total = e.binary(operation, 64, total, e.resize(carry, 1, 64))
    flag = e.value(f"trunc i64 {e.binary('lshr', 64, total, '32')} to i1") if "cc" in i.parts else None
    return e.resize(total, 64, 32), flag


def _product(e: Emitter, i: Instruction, x: Sequence[str], w: int) -> tuple[str, int]:
    form = i.parts[1]
    if form == "lo":
        return e.binary("mul", w, x[0], x[1]), w
    if form not in ("hi", "wide"):
        raise Unsupported(i.text)
    wide = [e.resize(value, w, 2 * w, signed(i)) for value in x[:2]]
    product = e.binary("mul", 2 * w, wide[0], wide[1])
    if form == "wide":
        return product, 2 * w
    return e.resize(e.binary("lshr", 2 * w, product, str(w)), 2 * w, w), w


def divide(e: Emitter, i: Instruction, x: Sequence[str]) -> str:
    """Dividing by zero gives all ones, as the hardware does for unsigned ones."""
    w = WIDTHS[i.type]
    zero = e.compare("eq", w, x[1], "0")
    operation = ("s" if signed(i) else "u") + i.parts[0]
    return e.select(zero, w, "-1", e.binary(operation, w, x[0], e.select(zero, w, "1", x[1])))


def shift(e: Emitter, i: Instruction, x: Sequence[str]) -> str:
    """Distances of the width and more shift everything out."""
    w = WIDTHS[i.type]
    distance = e.resize(x[1], 32, w)
    if i.parts[0] == "shr" and signed(i):
        return e.binary("ashr", w, x[0], e.call("umin", w, distance, str(w - 1)))
    inside = e.compare("ult", w, distance, str(w))
    shifted = e.binary("shl" if i.parts[0] == "shl" else "lshr", w, x[0], e.select(inside, w, distance, "0"))
    return e.select(inside, w, shifted, "0")


def funnel(e: Emitter, i: Instruction, x: Sequence[str]) -> str:
    """shf.l.wrap and shf.r.wrap: of the 64 bits x[1]:x[0]."""
    if i.parts[1:] not in (("l", "wrap", "b32"), ("r", "wrap", "b32")):
        raise Unsupported(i.text)
    return e.call(f"fsh{i.parts[1]}", 32, x[1], x[0], x[2])


def logic(e: Emitter, i: Instruction, x: Sequence[str]) -> str:
    w = WIDTHS[i.type]
    if i.parts[0] == "not":
        return e.binary("xor", w, x[0], "-1" if w > 1 else "true")
    return e.binary(i.parts[0], w, x[0], x[1])


def lookup(e: Emitter, i: Instruction, x: Sequence[str]) -> str:
    """lop3: any function of three bits, by its truth table."""
    table, total = int(x[3]), "0"
    for row in range(8):
        if table >> row & 1:
            terms = [value if row >> (2 - k) & 1 else e.binary("xor", 32, value, "-1") for k, value in enumerate(x[:3])]
            term = e.binary("and", 32, e.binary("and", 32, terms[0], terms[1]), terms[2])
            total = e.binary("or", 32, total, term)
    return total


def count(e: Emitter, i: Instruction, x: Sequence[str]) -> str:
    """popc, clz (32-bit results) and brev."""
    w = WIDTHS[i.type]
    if i.parts[0] == "brev":
        return e.call("bitreverse", w, x[0])
    return e.resize(e.call({"popc": "ctpop", "clz": "ctlz"}[i.parts[0]], w, x[0]), w, 32)


def bits(e: Emitter, i: Instruction, x: Sequence[str]) -> str:
    """bfe.u: x[2] bits of x[0] from bit x[1] on. bfi: the low x[3] bits of x[0] into x[1] at bit x[2]."""
    w = WIDTHS[i.type]
    if signed(i):
        raise Unsupported(i.text)
    inserts = i.parts[0] == "bfi"
    position, length = x[2:4] if inserts else x[1:3]
    wide = [e.resize(value, w, 2 * w) for value in (x[:2] if inserts else x[:1])]
    place, long = (
        e.call("umin", 2 * w, e.binary("and", 2 * w, e.resize(value, 32, 2 * w), "255"), str(w))
        for value in (position, length)
    )
    mask = e.binary("sub", 2 * w, e.binary("shl", 2 * w, "1", long), "1")
    if not inserts:
        return e.resize(e.binary("and", 2 * w, e.binary("lshr", 2 * w, wide[0], place), mask), 2 * w, w)
    there = e.binary("shl", 2 * w, mask, place)
    kept = e.binary("and", 2 * w, wide[1], e.binary("xor", 2 * w, there, "-1"))
    put = e.binary("shl", 2 * w, e.binary("and", 2 * w, wide[0], mask), place)
    return e.resize(e.binary("or", 2 * w, kept, put), 2 * w, w)


def permute(e: Emitter, i: Instruction, x: Sequence[str]) -> str:
    """prmt.b32: four bytes of x[1]:x[0], each chosen by a nibble of x[2]; its top bit spreads that byte's sign."""
    if i.parts[1:] != ("b32",):
        raise Unsupported(i.text)
    low, high = (e.resize(value, 32, 64) for value in x[:2])
    both = e.binary("or", 64, low, e.binary("shl", 64, high, "32"))
    total = "0"
    for k in range(4):
        nibble = e.binary("lshr", 32, x[2], str(4 * k))
        place = e.resize(e.binary("shl", 32, e.binary("and", 32, nibble, "7"), "3"), 32, 64)
        byte = e.resize(e.binary("lshr", 64, both, place), 64, 8)
        sign = e.binary("ashr", 8, byte, "7")
        spread = e.compare("ne", 32, e.binary("and", 32, nibble, "8"), "0")
        chosen = e.resize(e.select(spread, 8, sign, byte), 8, 32)
        total = e.binary("or", 32, total, e.binary("shl", 32, chosen, str(8 * k)))
    return total


def extreme(e: Emitter, i: Instruction, x: Sequence[str]) -> str:
    w = WIDTHS[i.type]
    return e.call(("s" if signed(i) else "u") + i.parts[0], w, x[0], x[1])


def negate(e: Emitter, i: Instruction, x: Sequence[str]) -> str:
    w = WIDTHS[i.type]
    minus = e.binary("sub", w, "0", x[0])
    return minus if i.parts[0] == "neg" else e.call("smax", w, x[0], minus)


def choose(e: Emitter, i: Instruction, x: Sequence[str]) -> str:
    return e.select(x[2], WIDTHS[i.type], x[0], x[1])


def test(e: Emitter, i: Instruction, x: Sequence[str]) -> str:
    """setp, with at most one more predicate that it is joined with."""
    w, comparison = WIDTHS[i.type], i.parts[1]
    if comparison in _ORDERED:
        llvm = ("s" if signed(i) else "u") + comparison
    elif comparison in _PREDICATES:
        llvm = _PREDICATES[comparison]
    else:
        raise Unsupported(i.text)
    result = e.compare(llvm, w, x[0], x[1])
    if len(x) == 2 and len(i.parts) == 3:
        return result
    if len(x) == 3 and i.parts[2] in ("and", "or", "xor"):
        return e.binary(i.parts[2], 1, result, x[2])
    raise Unsupported(i.text)


SIMPLE: dict[str, Callable[[Emitter, Instruction, Sequence[str]], str]] = {
    **dict.fromkeys(("div", "rem"), divide),
    **dict.fromkeys(("shl", "shr"), shift),
    **dict.fromkeys(("and", "or", "xor", "not"), logic),
    **dict.fromkeys(("popc", "clz", "brev"), count),
    **dict.fromkeys(("bfe", "bfi"), bits),
    **dict.fromkeys(("min", "max"), extreme),
    **dict.fromkeys(("neg", "abs"), negate),
    "shf": funnel,
    "lop3": lookup,
    "prmt": permute,
    "selp": choose,
    "setp": test,
}
ARITHMETIC = {"add", "sub", "mul", "mad", "addc", "subc", "madc"}


def operand_widths(i: Instruction, n: int) -> list[int]:
    """How wide an instruction reads its `n` sources."""
    w, name = WIDTHS[i.type], i.parts[0]
    widths = [w] * n
    match name:
        case "mad" if "wide" in i.parts:
            widths[2] = 2 * w
        case "shl" | "shr":
            widths[1] = 32
        case "bfe":
            widths[1:] = [32, 32]
        case "bfi":
            widths[2:] = [32, 32]
        case "selp" | "setp" if n == 3:
            widths[2] = 1
    return widths


def result_width(i: Instruction) -> int:
    w, name = WIDTHS[i.type], i.parts[0]
    if name == "setp":
        return 1
    if name in ("popc", "clz"):
        return 32
    return 2 * w if "wide" in i.parts else w
