"""Every report in docs/vast-reports.md has a test that exists, or says why it can't apply; every nasty case has one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.fakes.vast import scenarios

ROOT = Path(__file__).parents[3]
NUMBERS = "1 2 3 4 5 6 8 9 11 12 13 14 15 17 18 19 21 22 24 25 26 27 29 31 32 34 35 36 37 39 40 41 43 44 45 47 48 50"
NODE = re.compile(r"`(tests/[^`]+?\.py)::([^`]+)`")
ROW = re.compile(r"\| (\d+) \| (.+?) \| (.+?) \| (.+) \|")

ROWS = ROW.findall((ROOT / "docs" / "vast-reports.md").read_text())


@cache
def names_in(path: str) -> frozenset[str]:
    """`name`, or `Class::name`, of each test in a file."""
    tree = ast.parse((ROOT / path).read_text())
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for group in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        found |= {f"{group.name}::{node.name}" for node in group.body if isinstance(node, ast.FunctionDef)}
    return frozenset(name for name in found if name.split("::")[-1].startswith("test_"))


def test_none_is_left_out() -> None:
    assert [number for number, *_ in ROWS] == NUMBERS.split()


@pytest.mark.parametrize("row", ROWS, ids=[f"report-{number}" for number, *_ in ROWS])
def test_each_has_its_test_or_reason(row: tuple[str, str, str, str]) -> None:
    held_by = row[3]
    nodes = NODE.findall(held_by)
    assert held_by.count("`tests/") == len(nodes), "each test is written as `tests/file.py::name`"
    assert nodes or re.match(r"Can't apply: \w.{20,}", held_by)
    for path, name in nodes:
        assert name in names_in(path), f"{path} has no test {name}"


def test_every_nasty_case_has_its_test() -> None:
    told = "".join(file.read_text() for file in Path(__file__).parent.glob("test_nasty_*.py"))
    assert [name for name in scenarios.CASES if f'"{name}"' not in told and f"{name}:" not in told] == []
