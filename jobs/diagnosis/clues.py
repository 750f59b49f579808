"""What speaks for a cause or against it, besides a line of a log."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.diagnosis.case import Case
from jobs.diagnosis.report import Evidence


@dataclass(frozen=True)
class Clue:
    """`weight` 0 to 1: how surely it names the cause. Negative: it refutes, and `text` is the reason that is shown."""

    cause: str
    weight: float
    text: str
    evidence: list[Evidence] = field(default_factory=list)
    test: str = ""


def cite(case: Case, *words: str) -> list[Evidence]:
    """The line of the facts file that tells a fact: the first that holds one of `words` before its `=` or `:`."""
    for name in ("case.toml", "manifest.json"):
        for number, line in enumerate(case.sources.get(name, []), 1):
            key = line.partition("=")[0] if name == "case.toml" else line.partition(":")[0]
            if any(word in key.lower() for word in words):
                return [Evidence(name, number, line.strip()[:300])]
    return []
