"""What is asked of a line, and what any matching line must hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.levels import ERROR, INFO, WARN, counts, level_of
from logs.query import BadQuery, parse


def test_words_phrases_and_case() -> None:
    query = parse('Kernel "for execution on" image')
    assert query.branches == ((b"for execution on", b"kernel", b"image"),)
    assert query.matches(b"CUDA error: no KERNEL image is available for execution on the device")
    assert not query.matches(b"kernel image for execution of")


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        (r"sm_1[02]\d", (b"sm_1",)),
        (r"no kernel.*image", (b"no kernel", b"image")),
        (r"(?i)abc", ()),
        (r"abcd?ef", (b"abc",)),
        (r"abc(def)*ghi", (b"abc", b"ghi")),
        (r"took \d+\.\d ms", (b"took ", b" ms")),
        (r"ab{3}cde", (b"cde",)),
        (r"a.c", ()),
    ],
)
def test_what_an_expression_must_hold(pattern: str, literals: tuple[bytes, ...]) -> None:
    assert parse(pattern, regex=True).branches == ((literals,) if literals else ())


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"\x41bcd", b"Abcd"),
        (r"\pLabcd", b"Zabcd"),
        (r"\101bcd", b"Abcd"),
        (r"[]abc]defg", b"adefg"),
        (r"[^]abc]defg", b"xdefg"),
        (r"([)]abc)?defg", b"defg"),
        (r"[[:alpha:]abc]defg", b"xdefg"),
        (r"[\]abc]defg", b"adefg"),
        (r"\Qab|cd\E", b"ab|cd"),
    ],
)
def test_what_an_escape_or_a_class_stands_for_is_not_taken_for_text(pattern: str, line: bytes) -> None:
    query = parse(pattern, regex=True)
    assert query.matches(line)
    assert not query.branches or any(all(text in line.lower() for text in branch) for branch in query.branches)


@pytest.mark.parametrize("pattern", [r"\Afoo", r"foo\z"])
def test_ends_of_the_whole_text_are_refused(pattern: str) -> None:
    with pytest.raises(BadQuery, match=r"\^ and \$"):
        parse(pattern, regex=True)


def test_each_alternative_has_its_own() -> None:
    assert parse(r"out_of_memory|no kernel (a|b)", regex=True).branches == ((b"out_of_memory",), (b"no kernel ",))
    assert parse(r"out_of_memory|.x", regex=True).branches == ()
    assert parse(r"a[|]bcd", regex=True).branches == ((b"bcd",),)


def test_texts_never_rule_out_what_the_expression_matches_and_lines_are_found_in_the_whole() -> None:
    rng = random.Random(5)
    pieces = [
        "abc",
        "x",
        r"\.",
        r"\d",
        "[abc]",
        "(abc)",
        "(ab|cd)",
        "abc?",
        "abc*",
        "ab+",
        "a{2}",
        "(abc)?",
        ".",
        r"\w+",
        "^",
        "$",
        "é",
    ]
    lines = [
        "".join(rng.choice(["abc", "x", ".", "7", "ab", "cd", "aa", "é", "b", "c"]) for _ in range(8))
        for _ in range(300)
    ]
    for _ in range(400):
        pattern = "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 5)))
        query = parse(pattern, regex=True)
        for line in lines:
            data = line.encode()
            if query.matches(data) and query.branches:
                held = [all(text in data.lower() for text in branch) for branch in query.branches]
                assert any(held), (pattern, line)
        whole = "\n".join(lines).encode()
        found = [whole[begin:end].decode() for begin, end in query.lines(whole)]
        assert found == [line for line in lines if query.matches(line.encode())], pattern


@pytest.mark.parametrize("text", ["", "  ", "x" * 301, " ".join("abcdefghijklmnopqrstuvwxyz")])
def test_what_cannot_be_asked_says_why(text: str) -> None:
    with pytest.raises(BadQuery):
        parse(text)


@pytest.mark.parametrize("pattern", ["(", "[a", "a{99999}", r"(?=a)", r"\1", "*"])
def test_a_bad_expression_says_so(pattern: str) -> None:
    with pytest.raises(BadQuery, match="not an expression"):
        parse(pattern, regex=True)


def test_an_expression_that_would_run_away_elsewhere_does_not() -> None:
    assert not parse(r"(a+)+$", regex=True).matches(b"a" * 200_000 + b"!")


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b"2026 ERROR cuda: no kernel image", ERROR),
        (b"thread 'main' panicked at x.rs", ERROR),
        (b"CUDA_ERROR_OUT_OF_MEMORY", ERROR),
        (b"NVRM: Xid (PCI:0000:01:00): 79", ERROR),
        (b"finished: 0 errors, 12 proofs", INFO),
        (b'{"errors": 0, "failed": 0}', INFO),
        (b"error_rate=0.0", INFO),
        (b"0 errors but the upload failed", ERROR),
        (b"WARN retrying in 3 s", WARN),
        (b"connection refused", WARN),
        (b"\x1b[31mERROR\x1b[0m here", ERROR),
        (b"partition 3 done", INFO),
        (b"\xff\xfe\x00", INFO),
    ],
)
def test_levels(line: bytes, level: str) -> None:
    assert level_of(line) == level


WORDS = [
    b"error",
    b"0 errors",
    b"warn",
    b"no error",
    b"failed: 0",
    b"timeout",
    b"a_error",
    b"\x1b[31merror\x1b[0m",
    b"ok",
]


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=3).map(b" ".join), max_size=30))
def test_what_is_counted_is_what_each_line_says(lines: list[bytes]) -> None:
    levels = [level_of(line) for line in lines]
    assert counts(b"\n".join(lines)) == (levels.count(WARN), levels.count(ERROR))


def test_levels_of_a_chunk_are_counted() -> None:
    raw = b"0 errors\nERROR: a and a second error\nwarning: b\nall is well\ntimeout\nFAILED"
    assert counts(raw) == (2, 2)
    assert counts(b"") == (0, 0)
    warnings, errors = counts(b"error\n" * 1000 + b"warning\n" * 100)  # a storm: told by its first fifty lines
    assert (warnings, round(errors, -3)) == (0, 1000)
    assert counts(b"x" * 3000 + b" error") == (0, 0)  # as `level_of`, which looks at the first 2,000 bytes
