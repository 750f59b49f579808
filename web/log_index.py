"""Where the lines of streams are: one row a chunk, in memory, so that any line of millions is found at once.

Chunks are only ever added, so what was read once is kept, and a request asks for the newer ones only. Several streams
make one view on one clock: their chunks by time, then by the order in which the streams were named.

A line belongs to the chunk in which it ends. In the view of one stream a row is a line's own number, and rows of lines
that never came are empty; in that of several, rows are counted through, with one row for each stretch that is missing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt
from flask import Flask, current_app
from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from jobs.domain.models import Chunk
from jobs.domain.search_models import ChunkGrams

MAX_KEPT = 2_000_000  # chunks of all streams that are kept in memory: 128 MB
UNKNOWN = -1
KEY = "provefleet_log_index"

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_COLUMNS = 8


@dataclass(frozen=True)
class Chunks:
    """The chunks of one stream, in order. `warnings` and `errors` are `UNKNOWN` where nobody has counted; `open_end`:
    whether the last line of a chunk goes on in the next one.
    """

    table: Ints

    seq = property(lambda self: self.table[:, 0])
    first_line = property(lambda self: self.table[:, 1])
    lines = property(lambda self: self.table[:, 2])
    t_ms = property(lambda self: self.table[:, 3])
    t_last_ms = property(lambda self: self.table[:, 4])
    warnings = property(lambda self: self.table[:, 5])
    errors = property(lambda self: self.table[:, 6])
    open_end = property(lambda self: self.table[:, 7])

    def __len__(self) -> int:
        return len(self.table)

    @property
    def last_seq(self) -> int:
        return int(self.seq[-1]) if len(self) else -1

    def until(self, seq: int) -> Chunks:
        """Those up to chunk `seq`; the first in any case."""
        return Chunks(self.table[: max(1, int(np.searchsorted(self.seq, seq, "right")))])


def _newer(session: Session, instance_id: str, stream: str, seq: int) -> Ints:
    known = and_(
        ChunkGrams.instance_id == Chunk.instance_id, ChunkGrams.stream == Chunk.stream, ChunkGrams.seq == Chunk.seq
    )
    place = (Chunk.seq, Chunk.first_line, Chunk.lines, Chunk.t_first_ms, Chunk.t_last_ms)
    counted = (
        func.coalesce(ChunkGrams.warnings, UNKNOWN),
        func.coalesce(ChunkGrams.errors, UNKNOWN),
        func.coalesce(func.length(ChunkGrams.edge), 0),
    )
    rows = session.execute(
        select(*place, *counted)
        .outerjoin(ChunkGrams, known)
        .where(Chunk.instance_id == instance_id, Chunk.stream == stream, Chunk.seq > seq)
        .order_by(Chunk.seq)
    ).all()
    return np.array(rows, dtype=np.int64).reshape(-1, _COLUMNS)


class Index:
    """The chunks of the streams that were looked at last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], Chunks] = OrderedDict()

    def chunks(self, session: Session, instance_id: str, stream: str) -> Chunks:
        key = (instance_id, stream)
        with self._lock:
            held = self._kept.get(key, Chunks(np.zeros((0, _COLUMNS), dtype=np.int64)))
        newer = _newer(session, instance_id, stream, held.last_seq)
        if len(newer):
            held = Chunks(np.concatenate([held.table, newer]))
        with self._lock:
            # Another request may have come further in the meantime.
            held = max(held, self._kept.pop(key, held), key=len)
            self._kept[key] = held
            while len(self._kept) > 1 and sum(map(len, self._kept.values())) > MAX_KEPT:
                self._kept.popitem(last=False)
        return held


def attach(app: Flask) -> None:
    app.extensions[KEY] = Index()


def view(session: Session, instance_id: str, streams: tuple[str, ...], until: tuple[int, ...] = ()) -> View:
    """The rows of these streams; of several, only the chunks up to `until`, so that no row moves while one looks."""
    index = cast(Index, current_app.extensions[KEY])
    chunks = [index.chunks(session, instance_id, stream) for stream in streams]
    if len(until) == len(chunks) > 1:
        chunks = [one.until(seq) for one, seq in zip(chunks, until, strict=True)]
    return View(streams, chunks)


@dataclass(frozen=True)
class Stretch:
    """Rows `row` and on are the lines `first_line` and on of the stream with that number, `lines` of them.

    `gap`: the row before `row` says what is missing before `first_line`. `t_ms` bounds the times of its lines below.
    """

    stream: int
    row: int
    first_line: int
    lines: int
    t_ms: int
    gap: bool


class View:
    """Rows of one stream, or of several on one clock. All arrays have one entry a chunk, in the order of rows."""

    def __init__(self, streams: tuple[str, ...], chunks: list[Chunks]) -> None:
        self.streams, self.chunks = streams, chunks
        self.until = tuple(one.last_seq for one in chunks)
        whole = [_with_open_line(one) for one in chunks]
        clock = [np.maximum.accumulate(one.t_ms) for one in chunks]  # a machine's clock may be set back
        self.stream: Ints = np.concatenate([np.full(len(one), i, dtype=np.int64) for i, one in enumerate(chunks)])
        order = np.lexsort((np.concatenate([one.seq for one in chunks]), self.stream, np.concatenate(clock)))
        self.stream = self.stream[order]
        self.t_ms: Ints = np.concatenate(clock)[order]
        self.seq, self.first_line, self.warnings, self.errors = (
            np.concatenate([getattr(one, name) for one in chunks])[order]
            for name in ("seq", "first_line", "warnings", "errors")
        )
        self.lines: Ints = np.concatenate(whole)[order]
        self.gap: Flags = np.concatenate([_after_gap(one) for one in chunks])[order]
        if self.merged:
            ends = np.cumsum(self.lines + self.gap)
            self.row: Ints = 1 + ends - self.lines
            self.total = int(ends[-1]) if len(ends) else 0
        else:
            self.row = self.first_line
            self.total = int((self.row + self.lines).max() - 1) if len(self.row) else 0

    @property
    def merged(self) -> bool:
        return len(self.streams) > 1

    @property
    def open_end(self) -> bool:
        """Whether the last line of a stream is not finished."""
        return any(len(one) and bool(one.open_end[-1]) for one in self.chunks)

    def at(self, row: int) -> int:
        """The chunk that holds `row`, or the last one before it."""
        return max(0, int(np.searchsorted(self.row - self.gap if self.merged else self.row, row, "right")) - 1)

    def stretches(self, first: int, count: int) -> list[Stretch]:
        """What lies in the rows from `first` on. In the view of one stream it is one stretch, gaps and all."""
        last = min(first + count - 1, self.total)
        if not self.merged:
            return [Stretch(0, first, first, last - first + 1, 0, False)] if first <= last else []
        found: list[Stretch] = []
        for i in range(self.at(first), len(self.row)):
            if int(self.row[i]) - bool(self.gap[i]) > last:
                break
            skip = max(0, first - int(self.row[i]))
            lines = min(int(self.lines[i]) - skip, last - int(self.row[i]) - skip + 1)
            gap = bool(self.gap[i]) and int(self.row[i]) > first
            if lines > 0 or gap:
                row, line = int(self.row[i]) + skip, int(self.first_line[i]) + skip
                found.append(Stretch(int(self.stream[i]), row, line, max(lines, 0), int(self.t_ms[i]), gap))
        return _joined(found)

    def holding(self, marked: Flags) -> Flags:
        """Chunks in which a line ends that may have begun in a marked one: `marked`, and where their lines go on."""
        found = marked & (self.lines > 0)
        for stream in range(len(self.streams)):
            mine = np.flatnonzero(self.stream == stream)
            ending = mine[self.lines[mine] > 0]
            after = np.searchsorted(ending, mine[marked[mine]], "right")
            found[ending[after[after < len(ending)]]] = True
        return found

    def first_row_from(self, t_ms: int) -> int:
        """The first row whose chunk began at `t_ms` or later; the last row if none did."""
        later = np.flatnonzero((self.t_ms >= t_ms) & (self.lines > 0))
        return int(self.row[later[0]]) if len(later) else self.total


def _with_open_line(chunks: Chunks) -> Ints:
    """How many lines end in each chunk; the last one also has the line that is not finished yet."""
    lines: Ints = chunks.lines.copy()
    if len(lines) and chunks.open_end[-1]:
        lines[-1] += 1
    return lines


def _after_gap(chunks: Chunks) -> Flags:
    before: Ints = np.concatenate([[-1], chunks.seq[:-1]]) if len(chunks) else chunks.seq
    flags: Flags = chunks.seq != before + 1
    return flags


def _joined(stretches: list[Stretch]) -> list[Stretch]:
    """Those that follow on each other in one stream, as one: fewer are read at once."""
    if not stretches:
        return []
    found = [stretches[0]]
    for before, after in pairwise(stretches):
        last = found[-1]
        if after.stream == before.stream and not after.gap and after.first_line == before.first_line + before.lines:
            found[-1] = Stretch(last.stream, last.row, last.first_line, last.lines + after.lines, last.t_ms, last.gap)
        else:
            found.append(after)
    return found
