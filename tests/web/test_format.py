from __future__ import annotations

import re
from pathlib import Path

import pytest

from logs.ansi import visible
from web import format as f
from web.status import event_words

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "$0.00"),
        (11.4, "$11.40"),
        (1204, "$1,204.00"),
        (0.074, "$0.074"),
        (0.0054, "$0.0054"),
        (0.6, "$0.60"),
        (0.999, "$1.00"),
        (0.000001, "< $0.00001"),
        (-2.5, "-$2.50"),
        (0.4, "$0.40"),
    ],
)
def test_money_is_what_a_person_can_weigh(value: float | None, text: str) -> None:
    assert f.money(value) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (850, "850 ms"),
        (4200, "4.2 s"),
        (41_000, "41 s"),
        (229_000, "3 min 49 s"),
        (60_000, "1 min"),
        (7_800_000, "2 h 10 min"),
        (273_600_000, "3 d 4 h"),
        (None, "–"),
        (9_960, "10 s"),
    ],
)
def test_duration(ms: float | None, text: str) -> None:
    assert f.duration(ms) == text


def test_rate_with_its_interval() -> None:
    assert f.plus_minus(31.2, 25.4, 36.9) == "31 ± 6"
    assert f.plus_minus(412.7, None, None) == "413"
    assert f.plus_minus(0.5312, 0.49, 0.57) == "0.53 ± 0.04"
    assert f.plus_minus(10.0, 10.0, 10.0) == "10"


def test_number_and_size() -> None:
    assert [f.number(v) for v in (18_204, 1204.4, 31.25, 0.5, 0)] == ["18,204", "1,204", "31.2", "0.5", "0"]
    assert [f.size(v) for v in (812, 65_536, 1_288_490_189, 1 << 50)] == ["812 B", "64 KiB", "1.2 GiB", "1024 TiB"]


def test_relative_time() -> None:
    now = 1_000_000_000
    assert f.relative(now - 2000, now) == "just now"
    assert f.relative(now - 180_000, now) == "3 min ago"
    assert f.relative(now + 130_000, now) == "in 2 min"
    assert f.relative(now - 86_400_000 * 3, now) == "3 d ago"


@pytest.mark.parametrize(
    "char", [*map(chr, range(0x20)), "\x7f", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "\ud800", "\u2028"]
)
def test_no_character_can_hide(char: str) -> None:
    shown = visible(f"a{char}b")
    if char in "\t\n":
        assert shown == f"a{char}b"
    else:
        assert char not in shown
        assert len(shown) > 2


def test_times_out_of_range_do_not_raise() -> None:
    assert f.absolute(10**18).startswith("9999")
    assert f.absolute(-5).startswith("1970")


def test_every_kind_of_event_has_words() -> None:
    """Kinds are written where things happen: one without words would show an operator the code's own name."""
    rooms = (
        "run|instance|agent|benchmark|provider|archive|emergency|input|offers|job|user|machine|mark|cap|account|bill"
    )
    kinds = rf'"((?:{rooms})\.[a-z_]+)"'
    written: set[str] = set()
    for path in [*(ROOT / "jobs").rglob("*.py"), *(ROOT / "web").rglob("*.py")]:
        written |= set(re.findall(kinds, path.read_text()))
    others = {
        name for name in written if name.endswith((".page", ".one", ".html", ".log", ".lines", ".json", ".mark", ".sh"))
    }
    shown_as_states = {"run.state", "instance.state"}
    assert {kind for kind in written - others - shown_as_states if event_words(kind) == kind} == set()
