"""A strict reader of Prometheus' text format 0.0.4, written from its description: what a scraper would refuse
is refused here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)')
_SUFFIXES = {"summary": ("", "_sum", "_count"), "histogram": ("_bucket", "_sum", "_count")}

Key = tuple[str, frozenset[tuple[str, str]]]


@dataclass
class Family:
    kind: str
    text: str
    samples: dict[Key, float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """Families by name. AssertionError for anything that is not of the format."""
    assert text.endswith("\n")
    families: dict[str, Family] = {}
    help_text: dict[str, str] = {}
    current = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            assert re.fullmatch(_NAME, name), line
            assert name not in help_text, f"second HELP of {name}"
            help_text[name] = words
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("counter", "gauge", "summary", "histogram", "untyped"), line
            assert name not in families, f"second TYPE of {name}"
            families[current := name] = Family(kind, help_text[name])
        else:
            _sample(line, current, families[current])
    return families


def _sample(line: str, name: str, family: Family) -> None:
    found = _SAMPLE.fullmatch(line)
    assert found, line
    allowed = [name + suffix for suffix in _SUFFIXES.get(family.kind, ("",))]
    assert found[1] in allowed, f"{found[1]} among the samples of {name}"
    inside, labels = found[2] or "", {}
    at = 0
    while at < len(inside):
        label = _LABEL.match(inside, at)
        assert label, line
        assert label[1] not in labels, line
        labels[label[1]], at = label[2], label.end()
    key = (found[1], frozenset(labels.items()))
    assert key not in family.samples, f"twice: {line}"
    family.samples[key] = float(found[3])


def value(families: dict[str, Family], name: str, **labels: str) -> float:
    """One sample; KeyError when it is not there."""
    family = next(family for known, family in families.items() if name in (known, f"{known}_sum", f"{known}_count"))
    return family.samples[name, frozenset(labels.items())]
