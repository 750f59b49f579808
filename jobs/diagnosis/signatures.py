"""What a log line may mean, as data: `signatures/*.toml`, one table a signature.

    [[signature]]
    id = "disk-full"              unique
    cause = "disk_full"           a slug
    weight = 0.93                 how surely a line like this names the cause, 0 to 1, if nothing else is known
    any = ['no space left', ...]  RE2 expressions, any case; one must be found in the line
    not = ['memory']              none of these may be
    recovered = ['listening on']  a later line like this says that the trouble passed
    test = "..."                  what would refute it
    examples, counter             lines that must match, and must not: they are its tests

Lines are matched without colours and control characters. RE2 is linear in the line, whatever a program prints.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import re2

FOLDER = Path(__file__).parent / "signatures"


@dataclass(frozen=True, eq=False)
class Signature:
    """One table, its expressions compiled. `recovered` and `unless` are None where the table has none."""

    id: str
    cause: str
    weight: float
    patterns: tuple[str, ...]
    found: Any
    unless: Any
    recovered: Any
    test: str
    examples: tuple[str, ...]
    counter: tuple[str, ...]

    def matches(self, line: str) -> bool:
        """`line`: as `case.plain` gives it."""
        return bool(self.found.search(line)) and not (self.unless is not None and self.unless.search(line))


@cache
def load_signatures() -> tuple[Signature, ...]:
    """All signatures, in the order of files and tables."""
    return tuple(
        signature_of(table)
        for path in sorted(FOLDER.glob("*.toml"))
        for table in tomllib.loads(path.read_text(encoding="utf-8"))["signature"]
    )


@cache
def digest() -> str:
    """Names this version of the rules: 12 hex digits over all data and code of the diagnosis."""
    total = hashlib.sha256()
    for path in sorted([*Path(__file__).parent.rglob("*.toml"), *Path(__file__).parent.glob("*.py")]):
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:12]


def expression(patterns: list[str]) -> Any:
    """One compiled expression for any of `patterns`, in any case; None for none."""
    if not patterns:
        return None
    options = re2.Options()
    options.case_sensitive = False
    options.max_mem = 64 << 20
    options.log_errors = False
    return re2.compile("(?m)" + "|".join(f"(?:{pattern})" for pattern in patterns), options)


def signature_of(table: dict[str, Any]) -> Signature:
    """A table, compiled."""
    return Signature(
        id=table["id"],
        cause=table["cause"],
        weight=float(table["weight"]),
        patterns=tuple(table["any"]),
        found=expression(table["any"]),
        unless=expression(table.get("not", [])),
        recovered=expression(table.get("recovered", [])),
        test=table.get("test", ""),
        examples=tuple(table.get("examples", ())),
        counter=tuple(table.get("counter", ())),
    )
