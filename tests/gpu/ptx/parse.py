"""PTX text to functions, variables and instructions with resolved names. Covers what NVVM writes for our kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

WIDTHS = {"pred": 1} | {f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)}
"""Bits of every type; floating-point ones are missing on purpose: no kernel of ours may use them."""


class Unsupported(Exception):
    """PTX that the translator does not know: it names the text."""


@dataclass(frozen=True)
class Address:
    """[base + offset]; `base` is a register or a variable."""

    base: str
    offset: int


Operand = str | int | Address | list["Operand"]
"""A register, variable, label or special register; an immediate; an address; a vector."""


@dataclass(frozen=True)
class Instruction:
    """`guard` is None or (predicate, whether it is negated)."""

    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[str, bool] | None
    text: str

    @property
    def type(self) -> str:
        return self.parts[-1]


@dataclass(frozen=True)
class Variable:
    """`initial` are its first bytes, the rest is zero."""

    name: str
    space: str
    align: int
    size: int
    initial: bytes = b""


@dataclass
class Function:
    """`body` holds labels (str) and instructions in order. `widths`: bits of each register."""

    name: str
    is_kernel: bool
    params: list[Variable]
    returns: list[Variable]
    max_threads: int | None = None
    body: list[str | Instruction] = field(default_factory=list)
    widths: dict[str, int] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)


def parse(text: str) -> tuple[list[Function], list[Variable]]:
    """All functions with a body, and the variables of the module."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"^\s*\.(version|target|address_size)[^\n]*", "", text, flags=re.MULTILINE)
    functions, variables, at = [], [], 0
    while text[at:].strip():
        end = re.compile(r"[;{]").search(text, at)
        if end is None:
            raise Unsupported(text[at:].strip()[:80])
        head = " ".join(text[at : end.start()].split())
        if "=" in head or end.group() == ";":
            end_at = text.index(";", at)
            head = " ".join(text[at:end_at].split())
            at = end_at + 1
            if not re.search(r"\.(func|entry)\b", head):
                variables.append(_variable(head))
            continue
        close = _matching(text, end.start())
        functions.append(_function(head, text[end.start() + 1 : close]))
        at = close + 1
    return functions, variables


def _matching(text: str, at: int) -> int:
    depth = 0
    for found in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if found.group() == "{" else -1
        if depth == 0:
            return found.start()
    raise Unsupported("a function without an end")


def _variable(head: str) -> Variable:
    found = re.fullmatch(
        r"(?:\.(?:visible|weak|common|extern)\s+)*\.(global|const|shared|local|param)\s+(?:\.align\s+(\d+)\s+)?"
        r"\.(\w+)\s+([\w$.]+)(?:\[(\d*)\])?(?:\s*=\s*(.*))?",
        head,
    )
    if found is None or found[3] not in WIDTHS or found[5] == "":
        raise Unsupported(head)
    space, align, kind, name, count, initial = found.groups()
    width = WIDTHS[kind] // 8
    values = [int(value, 0) for value in re.findall(r"-?\w+", initial or "")]
    raw = b"".join((value % (1 << (8 * width))).to_bytes(width, "little") for value in values)
    return Variable(name, space, int(align or width), width * int(count or 1), raw)


def _function(head: str, body: str) -> Function:
    found = re.search(r"\.(entry|func)\s+(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?(.*)", head)
    if found is None:
        raise Unsupported(head[:100])
    kind, returns, name, params, rest = found.groups()
    threads = re.search(r"\.maxntid\s+(\d+)", rest)
    limit = int(threads[1]) if threads else None
    function = Function(name, kind == "entry", _variables(params), _variables(returns), limit)
    _Body(function).read(body)
    return function


def _variables(text: str | None) -> list[Variable]:
    return [_variable(part.strip()) for part in (text or "").split(",") if part.strip()]


class _Body:
    """Reads statements; a register in an inner `{ }` hides one of the same name outside."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._scopes: list[dict[str, str]] = [{}]
        self._opened = 0

    def read(self, body: str) -> None:
        statement, depth = "", 0
        for piece in re.split(r"([;{}])", body):
            if piece == "{" and not statement.strip():
                self._opened += 1
                self._scopes.append({})
            elif piece == "}" and depth == 0:
                self._scopes.pop()
            elif piece == ";":
                self._statement(" ".join(statement.split()))
                statement = ""
            else:
                depth += {"{": 1, "}": -1}.get(piece, 0)
                statement = self._labels(statement + piece)

    def _labels(self, text: str) -> str:
        while found := re.match(r"\s*([$\w]+):", text):
            self._function.body.append(found[1])
            text = text[found.end() :]
        return text

    def _statement(self, text: str) -> None:
        if text.startswith(".reg"):
            self._registers(text)
        elif text.startswith((".param", ".local", ".shared")):
            variable = _variable(text)
            unique = self._declare(variable.name)
            self._function.variables.append(
                Variable(unique, variable.space, variable.align, variable.size, variable.initial)
            )
        elif not text.startswith((".pragma", ".loc", ".file")):
            self._function.body.append(self._instruction(text))

    def _registers(self, text: str) -> None:
        found = re.fullmatch(r"\.reg \.(\w+) (.*)", text)
        if found is None or found[1] not in WIDTHS:
            raise Unsupported(text)
        for name in found[2].split(","):
            ranged = re.fullmatch(r"\s*([%\w]+)<(\d+)>", name)
            names = [f"{ranged[1]}{i}" for i in range(int(ranged[2]))] if ranged else [name.strip()]
            for each in names:
                self._function.widths[self._declare(each)] = WIDTHS[found[1]]

    def _declare(self, name: str) -> str:
        unique = name if len(self._scopes) == 1 else f"{name}#{self._opened}"
        self._scopes[-1][name] = unique
        return unique

    def _instruction(self, text: str) -> Instruction:
        found = re.fullmatch(r"(?:@(!?)([%\w]+) )?([\w.:]+) ?(.*)", text)
        if found is None:
            raise Unsupported(text)
        negated, predicate, name, rest = found.groups()
        guard = (self._resolve(predicate), bool(negated)) if predicate else None
        operands = tuple(self._operand(part) for part in _split(rest)) if rest else ()
        return Instruction(tuple(name.replace("::", ".").split(".")), operands, guard, text)

    def _operand(self, text: str) -> Operand:
        if text[0] in "{(":
            return [self._operand(part) for part in _split(text[1:-1])]
        if text[0] == "[":
            found = re.fullmatch(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\w+))?\s*\]", text)
            if found is None:
                raise Unsupported(text)
            return Address(self._resolve(found[1]), int(found[2] or "0", 0))
        if re.fullmatch(r"-?(0x)?[0-9a-fA-F]+U?", text) and (text.lstrip("-")[0].isdigit()):
            return int(text.rstrip("U"), 0)
        if "|" in text:
            return [self._resolve(part) for part in text.split("|")]
        return self._resolve(text)

    def _resolve(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return name


def _split(text: str) -> list[str]:
    """By the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]
