"""A failure beside a success: masked lines that read alike stand beside each other, the first other one is marked."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from jobs.story.diff import SEEN, WINDOW, Comparison, Fetch, compare, folded
from logs.reader import Line


def fetch(lines: Sequence[str], most: list[int] | None = None) -> Fetch:
    def some(first: int, count: int) -> Sequence[Line]:
        if most is not None:
            most.append(count)
        found = enumerate(lines[first - 1 : first - 1 + count], first)
        return [Line(number, text, 0) for number, text in found]

    return some


def compared(failed: list[str], well: list[str], decisive: int) -> Comparison:
    return compare(fetch(failed), len(failed), fetch(well), len(well), decisive)


def steps(count: int, day: int = 1) -> list[str]:
    words = [chr(97 + i % 26) + chr(97 + i // 26 % 26) for i in range(count)]
    return [f"2026-11-{day:02}T10:00:{i % 60:02} step {word} took {i * day} ms" for i, word in enumerate(words)]


def test_times_and_numbers_do_not_part_them_and_the_error_does() -> None:
    failed = [*steps(20, 3), "CUDA error: no kernel image", "giving up"]
    well = [*steps(20, 9), "proof 0 is valid", "proof 1 is valid"]
    found = compared(failed, well, 21)
    assert found.alike == 20
    assert found.parted is not None
    assert found.parted.left is not None
    assert found.parted.right is not None
    assert (found.parted.left.number, found.parted.right.number) == (21, 21)
    assert found.parted.decisive
    assert not found.cut


def test_a_line_more_or_less_does_not_shift_the_rest() -> None:
    well = steps(30)
    failed = [*well[:10], "retrying", *well[10:]]
    found = compared(failed, well, 11)
    assert found.alike == 30
    assert found.parted is not None
    assert found.parted.left is not None
    assert found.parted.left.text == "retrying"
    assert found.parted.right is None
    assert [row.right.text for row in found.rows if row.same and row.right] == well


@pytest.mark.parametrize("shift", [0, 910, 150_003])
def test_the_like_stretch_is_found_in_a_long_log(shift: int) -> None:
    """Around the same number, or at an end, however long the two are."""
    # Shifts are whole periods of the body: the two logs differ nowhere else.
    body = [f"work {chr(97 + i % 7)}" for i in range(200_000)]
    story = [f"special {chr(97 + i % 26)}{chr(97 + i // 26)} thing" for i in range(60)]
    at = len(body) - 100
    failed = [*body[:at], *story, "fatal: it broke"]
    well = [*body[: at - shift], *story, "done"]
    asked: list[int] = []
    found = compare(fetch(failed), len(failed), fetch(well, asked), len(well), len(failed))
    assert found.parted is not None
    assert found.parted.left is not None
    assert found.parted.left.text == "fatal: it broke"
    assert sum(asked) <= SEEN
    assert len(found.rows) <= 2 * WINDOW
    assert found.cut


def test_what_is_missing_is_like_nothing_and_strangers_share_no_line() -> None:
    gap = [Line(1, "lines 1-3 are missing", 0, gap=True)]
    found = compare(lambda *_: gap, 1, lambda *_: gap, 1, 1)
    assert found.alike == 0
    other = compared(["alpha", "beta"], ["gamma"], 2)
    assert other.alike == 0
    assert other.parted is not None
    assert compared([], [], 1).rows == []


def test_every_line_of_the_window_is_shown_once_whatever_the_lines_are() -> None:
    dice = random.Random(3)
    for _ in range(40):
        failed, well = ([dice.choice("abcde") for _ in range(dice.randrange(60))] for _ in range(2))
        found = compared(failed, well, 1)
        assert [row.left.text for row in found.rows if row.left] == failed
        assert [row.right.text for row in found.rows if row.right] == well
        assert [row for _, rows in folded(found.rows) for row in rows] == list(found.rows)
        assert all(row.left and row.right and row.left.text == row.right.text for row in found.rows if row.same)


def test_only_the_middle_of_a_long_run_of_one_kind_folds() -> None:
    found = compared([*steps(40), "broken"], [*steps(40), "fine"], 41)
    assert [(kind, len(rows)) for kind, rows in folded(found.rows)] == [("alike", 37), ("", 4)]
    longer = compared(steps(40), [*steps(40), *(f"more {chr(97 + i)}" for i in range(20))], 1)
    assert [(kind, len(rows)) for kind, rows in folded(longer.rows)] == [
        ("", 4), ("alike", 33), ("", 7), ("only in the success", 16),
    ]  # fmt: skip
