"""What machines wrote becomes harmless to look at."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs.ansi import HUES, MAX_PARTS, parts, plain, visible

NAMES = {f"{kind}-{hue}" for kind in ("ink", "paper") for hue in HUES}
NAMES |= {f"sgr-{mark}" for mark in ("bold", "dim", "italic", "underline", "reverse", "strike")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", [("plain", "")]),
        ("", []),
        ("\x1b[31mred\x1b[0m", [("red", "ink-red")]),
        ("a\x1b[1;4mb\x1b[22mc", [("a", ""), ("b", "sgr-bold sgr-underline"), ("c", "sgr-underline")]),
        ("\x1b[7;31mturned", [("turned", "paper-red")]),
        ("\x1b[38;5;196mx\x1b[39my", [("x", "ink-red"), ("y", "")]),
        ("\x1b[38;2;0;0;255mx", [("x", "ink-blue")]),
        ("\x1b[38:2::0:255:0mx", [("x", "ink-green")]),
        ("\x1b[8mhidden\x1b[5mblinks", [("hiddenblinks", "")]),
        ("\x1b]8;;https://evil.example\x07link", [("␛]8;;https://evil.example␇link", "")]),
        ("\x1b[2J\x1b[Hgone", [("␛[2J␛[Hgone", "")]),
    ],
)
def test_pieces_of_one_style_each(text: str, expected: list[tuple[str, str]]) -> None:
    assert parts(text) == expected


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.one_of(st.text(max_size=9), st.sampled_from(["\x1b[", "31", ";", "38;5;", "m", "\x1b", "\x9b", "0"])))
)
def test_whatever_comes_is_text_and_names_of_ours(pieces: list[str]) -> None:
    text = "".join(pieces)
    found = parts(text)
    assert "".join(part for part, _ in found) == plain(text)
    assert all(set(styles.split()) <= NAMES for _, styles in found)
    assert len(found) <= MAX_PARTS
    shown = plain(text)
    assert not any(
        (ord(c) < 0x20 and c not in "\t\n") or 0x7F <= ord(c) < 0xA0 or "\u202a" <= c <= "\u202e" for c in shown
    )
    assert visible(shown) == shown


def test_a_line_of_nothing_but_colours_has_few_pieces() -> None:
    assert len(parts("".join(f"\x1b[{30 + i % 7}m{i}" for i in range(1000)))) == MAX_PARTS
