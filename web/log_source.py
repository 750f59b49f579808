"""Lines of a view as a page shows them: read from the archive, masked once more, made harmless, with their level."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from jobs.domain import archive
from jobs.domain.models import Chunk
from logs import ansi
from logs.frames import Chunk as ReadChunk
from logs.frames import read_chunks
from logs.gaps import missing_text
from logs.levels import LEVELS, level_of
from logs.reader import MAX_PAGE_LINES, Line, StreamReader
from logs.segments import Segments
from logs.store import Store
from logs.wire import ChunkRecord
from web.log_index import Flags, Ints, Stretch, View

MOST_AT_ONCE = 64
"""Chunks that are looked through at once: 4 MB."""
GAP = "gap"
"""The style of a part that is no text of the log but says what is missing from it."""


@dataclass
class Row:
    """One row: line `number` of a stream (by its place in the view). `level` is a place in `LEVELS`.

    `bytes` is what the line really has where only its first 8 KiB are shown, else 0.
    """

    row: int
    stream: int
    number: int
    level: int
    t_ms: int
    bytes: int = 0
    parts: list[ansi.Part] = field(default_factory=list)

    @property
    def gap(self) -> bool:
        """Whether it is nothing but a mark."""
        return all(style == GAP for _, style in self.parts) and bool(self.parts)

    @property
    def text(self) -> str:
        """The line as it is read, without its colours and marks."""
        return "".join(text for text, style in self.parts if style != GAP)

    def to_json(self) -> list[object]:
        """`[row, stream, number, level, t_ms, bytes, text]`; `text` is a list of `[text, styles]` where it has any."""
        styled = any(style for _, style in self.parts)
        text: object = [list(part) for part in self.parts] if styled else "".join(text for text, _ in self.parts)
        return [self.row, self.stream, self.number, self.level, self.t_ms, self.bytes, text]


class Source:
    """What the archive holds of the streams of a view."""

    def __init__(self, session: Session, store: Store, run: str, instance_id: str, view: View) -> None:
        self._session, self._store = session, store
        self._run, self._instance_id = run, instance_id
        self.view = view

    def rows(self, first: int, count: int) -> list[Row]:
        """The rows from `first` on; those of lines that never came are left out after their mark.

        Raises `logs.errors.StoreError`.
        """
        found: dict[int, Row] = {}
        for stretch in self.view.stretches(first, count):
            if stretch.gap:
                self._add(found, stretch.row - 1, stretch.stream, self._mark(stretch))
            for line in self._lines(stretch.stream, stretch.first_line, stretch.lines):
                row = stretch.row + max(0, line.number - stretch.first_line)
                self._add(found, row, stretch.stream, line, stretch.t_ms)
        return [found[row] for row in sorted(found)]

    def _mark(self, stretch: Stretch) -> Line:
        chunks = self.view.chunks[stretch.stream]
        at = int(np.searchsorted(chunks.first_line, stretch.first_line))
        before = int(chunks.first_line[at - 1] + chunks.lines[at - 1]) if at else 1
        return Line(before, missing_text(before, stretch.first_line), stretch.t_ms, gap=True)

    @staticmethod
    def _add(found: dict[int, Row], number: int, stream: int, line: Line, t_ms: int = 0) -> None:
        row = found.setdefault(number, Row(number, stream, line.number, 0, max(line.t_ms, t_ms)))
        if line.gap:
            row.parts.append((line.text, GAP))
            return
        row.parts += ansi.parts(line.text)
        row.level = max(row.level, LEVELS.index(level_of(line.text.encode("utf-8", "replace"))))
        row.bytes = line.length if line.truncated else 0

    def _lines(self, stream: int, first: int, count: int) -> Iterator[Line]:
        while count > 0:
            reader = self._reader(stream, first, min(count, MAX_PAGE_LINES))
            yield from reader.lines(first, count)
            first, count = first + MAX_PAGE_LINES, count - MAX_PAGE_LINES

    def _reader(self, stream: int, first: int, count: int) -> StreamReader:
        """One over the chunks that these lines need, and the one before, by which a gap is known."""
        chunks = self.view.chunks[stream]
        ends = np.maximum.accumulate(chunks.first_line + chunks.lines)
        low = max(0, int(np.searchsorted(ends, first)) - 1)
        high = min(int(np.searchsorted(chunks.first_line, first + count - 1, "right")), len(chunks) - 1)
        low_seq, high_seq = (int(chunks.seq[i]) for i in (min(low, high), high))
        records, segments = self._places(stream, low_seq, high_seq)
        return StreamReader(self._store, self._run, self._instance_id, self.view.streams[stream], records, segments)

    def _places(self, stream: int, low_seq: int, high_seq: int) -> tuple[list[ChunkRecord], Segments]:
        name = self.view.streams[stream]
        rows = self._session.execute(
            select(*archive.RECORD)
            .where(Chunk.instance_id == self._instance_id, Chunk.stream == name, Chunk.seq.between(low_seq, high_seq))
            .order_by(Chunk.seq)
        )
        records = [ChunkRecord(*row) for row in rows]
        return records, archive.segments_between(self._session, self._instance_id, name, low_seq, high_seq)

    def raw(self, stream: int, seqs: set[int]) -> Iterator[ReadChunk]:
        """The bytes of these chunks of a stream, in order. Raises `logs.errors.StoreError`."""
        records, segments = self._places(stream, min(seqs), max(seqs))
        wanted = [record for record in records if record.seq in seqs]
        yield from read_chunks(self._store, self._run, self._instance_id, self.view.streams[stream], wanted, segments)

    def seek(
        self,
        row: int,
        *,
        back: bool,
        chunks: Flags,
        wanted: Callable[[Row], bool],
        narrowed: Callable[[Ints], Ints],
        more: Callable[[], bool],
    ) -> tuple[Row | None, int]:
        """The nearest wanted row after (`back`: before) `row`, among those of marked chunks, and how far was looked:
        that row, or where to go on when `more` said to stop, or 0 where there is no other.

        `narrowed` leaves out of some chunks those in which it can tell that no wanted line ends. Raises
        `logs.errors.StoreError`.
        """
        view = self.view
        marked = np.flatnonzero(view.holding(chunks))
        here = view.at(row)
        order = marked[marked <= here][::-1] if back else marked[marked >= here]
        for some in _batches(order):
            for i in narrowed(some):
                found = self.rows(int(view.row[i]), int(view.lines[i]))
                for one in reversed(found) if back else found:
                    if (one.row < row if back else one.row > row) and not one.gap and wanted(one):
                        return one, one.row
            last = int(some[-1])
            if last != order[-1] and not more():
                return None, int(view.row[last]) if back else int(view.row[last] + view.lines[last]) - 1
        return None, 0


def _batches(order: Ints) -> Iterator[Ints]:
    """A few at first, since what is looked for is often near; then many, since one request reads many."""
    at, size = 0, 1
    while at < len(order):
        yield order[at : at + size]
        at, size = at + size, min(2 * size, MOST_AT_ONCE)
