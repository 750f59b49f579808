"""Two stretches of logs side by side: what reads alike once times, ids and numbers are masked, and where they part.

Everything is bounded: at most `WINDOW` lines a side are aligned (a longest common subsequence, quadratic in the window
whatever the lines are; difflib's worst case is worse), found in at most `SEEN` lines of the other log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from jobs.diagnosis.case import plain
from jobs.diagnosis.fingerprint import masked
from logs.reader import Line

WINDOW = 400
BEFORE = 300
"""Lines of a window that lie before the decisive one."""
SEEN = 4800
ABOUT = 0.97
"""Windows whose likeness is within this part of the best one's are as good."""
STEADY = 5
"""So many alike lines in a row are no accident of where a window was cut."""
_MASKED_CHARACTERS = 600
_ANY_NUMBER = re.compile("<(?:id|hex|n)>")

Fetch = Callable[[int, int], Sequence[Line]]
"""(first line number, count) -> those lines of a stream."""


@dataclass(frozen=True)
class Row:
    """A line of the failure beside one of the success. `same`: they read alike. `parts`: here they first differ."""

    left: Line | None
    right: Line | None
    same: bool = False
    parts: bool = False
    decisive: bool = False


@dataclass(frozen=True)
class Comparison:
    """`rows` in order. `alike`: how many are the same. `cut`: lines before the window were not compared."""

    rows: Sequence[Row]
    alike: int
    cut: bool

    @property
    def parted(self) -> Row | None:
        """Where the two first differ."""
        return next((row for row in self.rows if row.parts), None)


def compare(failed: Fetch, failed_lines: int, well: Fetch, well_lines: int, decisive: int) -> Comparison:
    """The lines of a failure around number `decisive`, aligned with the stretch of a success that is most like them.

    `failed_lines` and `well_lines`: how many each log has. Raises what the two fetches raise.
    """
    first = max(1, min(decisive - BEFORE, failed_lines + 1 - WINDOW))
    left = list(failed(first, WINDOW))[: 2 * WINDOW]
    right = _most_alike([_key(line) for line in left], well, well_lines, first)
    at_the_top = first == 1 and bool(right) and right[0].number == 1
    return _marked(_aligned(left, right), decisive, at_the_top)


def _key(line: Line) -> str:
    """What two lines must share to be alike; marks of missing lines are like nothing."""
    # A long number reads like an id where a short one does not: either is a number here.
    return "" if line.gap else _ANY_NUMBER.sub("<n>", masked(plain(line.text[:_MASKED_CHARACTERS])))


def _most_alike(wanted: Sequence[str], well: Fetch, lines: int, near: int) -> list[Line]:
    """The window of the other log that shares most with `wanted`; lines that are rare there weigh more. Of windows that
    are about as good, the one that begins nearest to line `near`: most logs repeat themselves."""
    windows: list[tuple[float, int, list[Line], int]] = []
    keys = set(wanted) - {""}
    for first, count in _places(lines, near):
        found = list(well(first, count))
        own = [_key(line) for line in found]
        often = Counter(own)
        weights = [1 / often[key] if key in keys else 0.0 for key in own]
        size = min(len(found), WINDOW)
        score = sum(weights[:size])
        for at in range(len(found) - size + 1 if found else 0):
            if at:
                score += weights[at + size - 1] - weights[at - 1]
            windows.append((score, abs(found[at].number - near), found, at))
    good = ABOUT * max((score for score, *_ in windows), default=0.0)
    near_ones = (window for window in windows if window[0] >= good - 1e-9)
    _, _, lines_there, at = min(near_ones, key=lambda window: window[1], default=(0.0, 0, list[Line](), 0))
    return lines_there[at : at + WINDOW]


def _places(lines: int, near: int) -> Iterator[tuple[int, int]]:
    """(first line, count) of what is looked at: around the same number, the beginning, the end."""
    third = SEEN // 3
    if lines <= SEEN:
        yield 1, SEEN  # the whole log
        return
    yield max(1, min(near - third // 2, lines + 1 - third)), third
    yield 1, third
    yield lines + 1 - third, third


def _aligned(left: Sequence[Line], right: Sequence[Line]) -> Iterator[Row]:
    """Rows in order: alike lines beside each other, and what lies between them side by side as it comes."""
    at_left = at_right = 0
    for i, j in [*_common([_key(x) for x in left], [_key(y) for y in right]), (len(left), len(right))]:
        for one, other in zip_longest(left[at_left:i], right[at_right:j]):
            yield Row(one, other)
        if i < len(left):
            yield Row(left[i], right[j], same=True)
        at_left, at_right = i + 1, j + 1


def _common(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of positions of a longest common subsequence."""
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in range(len(left) - 1, -1, -1):
        row, below, key = table[i], table[i + 1], left[i]
        for j in range(len(right) - 1, -1, -1):
            same = key == right[j] and key != ""
            row[j] = below[j + 1] + 1 if same else max(below[j], row[j + 1])
    pairs, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        if left[i] == right[j] and left[i]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif table[i + 1][j] >= table[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _marked(rows: Iterator[Row], decisive: int, at_the_top: bool) -> Comparison:
    """The first difference is marked; what differs above the first alike lines of a cut window is only its edge."""
    found = list(rows)
    alike = [i for i, row in enumerate(found) if row.same]
    steady = (i for i in alike if all(row.same for row in found[i : i + STEADY]))
    begin = 0 if at_the_top else next(steady, len(found))
    parts = next((i for i, row in enumerate(found) if i >= begin and not row.same), None)
    for i, row in enumerate(found):
        is_decisive = row.left is not None and row.left.number == decisive and not row.left.gap
        if i == parts or is_decisive:
            found[i] = replace(row, parts=i == parts, decisive=is_decisive)
    return Comparison(found, len(alike), not at_the_top)


def folded(rows: Sequence[Row], around: int = 3) -> list[tuple[str, list[Row]]]:
    """The rows in pieces, in order. The middle of a long run of one kind may be hidden: its piece says which kind, in
    words; the others say ''."""
    kinds = [_kind(row) for row in rows]
    shown = [
        row.parts or row.decisive or not kinds[i] or (i > 0 and kinds[i - 1] != kinds[i]) for i, row in enumerate(rows)
    ]
    pieces: list[tuple[str, list[Row]]] = []
    for i, row in enumerate(rows):
        near = any(shown[max(0, i - around) : i + around + 1])
        if not pieces or bool(pieces[-1][0]) == near:
            pieces.append(("" if near else kinds[i], []))
        pieces[-1][1].append(row)
    return [(kind if len(piece) > around else "", piece) for kind, piece in pieces]


def _kind(row: Row) -> str:
    if row.same:
        return "alike"
    if row.left and row.right:
        return ""
    return "only here" if row.left else "only in the success"
