"""A run as the diagnosis sees it: logs by file name, facts as a table, telemetry rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# ESC sequences and what a terminal obeys: OSC up to its end, CSI, two-character ones; then other control characters.
_ANSI = re.compile(
    r"\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f]"
)
MAX_LINE = 4000
MAX_FACTS = 5000


class BadCase(ValueError):
    """What was given can't be read as a case; one line says what and why."""


def plain(line: str) -> str:
    """A line without colours and control characters, at most 4,000 characters."""
    line = line[: 2 * MAX_LINE]
    return (_ANSI.sub("", line) if not line.isprintable() else line)[:MAX_LINE]


@dataclass
class Case:
    """`streams`: file name to its lines (without newlines). `facts`: the tables of case.toml, or a bundle's manifest
    in that shape. `gpu`: rows of telemetry by column name, lower case, from `gpu_file`, one a line after its header.
    `sources`: the lines of the files that the facts come from. What is missing is empty."""

    streams: dict[str, list[str]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    gpu: list[dict[str, str]] = field(default_factory=list)
    gpu_file: str = ""
    sources: dict[str, list[str]] = field(default_factory=dict)
    torn: set[str] = field(default_factory=set)  # streams whose last line has no end

    @cached_property
    def flat(self) -> list[tuple[str, Any]]:
        """Every fact as (dotted key in lower case, value); lists as one text."""
        return list(_flat("", self.facts))[:MAX_FACTS]

    def find(self, *patterns: str, table: str = "") -> Any:
        """The first fact whose dotted key matches one of `patterns` (searched in the order given); None if none does.

        Authors name keys differently: ask by meaning, e.g. `find(r"driver.*cuda", r"cuda.*driver")`.
        """
        for pattern in patterns:
            wanted = re.compile(pattern)
            for key, value in self.flat:
                if (not table or key.startswith(f"{table}.")) and wanted.search(key):
                    return value
        return None

    def number(self, *patterns: str, table: str = "") -> float | None:
        """As `find`, a number: also out of text such as "504 GB"."""
        return as_number(self.find(*patterns, table=table))

    def text(self, *patterns: str, table: str = "") -> str:
        """As `find`, as text; "" if there is none."""
        value = self.find(*patterns, table=table)
        return "" if value is None else str(value)

    def told(self, *tables: str) -> str:
        """All that these tables say, as one lower-case text."""
        return "\n".join(
            f"{key}: {value}" for key, value in self.flat if any(key.startswith(f"{t}.") or key == t for t in tables)
        ).lower()


def table_of(facts: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A table of facts that a stranger wrote; an empty one where it is missing or no table."""
    value = facts.get(name)
    return value if isinstance(value, dict) else {}


def as_number(value: Any) -> float | None:
    """A number, or the first number in a text; None otherwise."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e18 else None
    found = re.search(r"-?\d+(?:\.\d+)?", str(value)[:200]) if isinstance(value, str) else None
    return float(found[0]) if found else None


def _flat(prefix: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and depth < 8:
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}".strip(".").lower(), inner, depth + 1)
    elif isinstance(value, list):
        yield prefix, "\n".join(str(item)[:2000] for item in value[:500])
    else:
        yield prefix, value
