"""Paging through one stream by line number, reading only the chunks that a page needs.

Numbering is that of `logs.wire`: 1-based; a line may begin in one chunk and end in a later one.
Where chunks are missing the page says so, and the numbers go on as the sender counted them.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from logs.frames import read_chunk, read_chunks
from logs.gaps import in_order, missing_text
from logs.redact import redact
from logs.segments import NONE, Segments
from logs.store import Store
from logs.wire import KIB, ChunkRecord

SHOWN_BYTES = 8 * KIB
MAX_PAGE_LINES = 5000


@dataclass(frozen=True)
class Line:
    """One line of a page. `text` is what the machine wrote, control characters included: `logs.ansi` makes it harmless.

    `t_ms`: when the sender began the chunk in which the line begins (within 2 s).
    `length`: bytes the line really has; `truncated` if `text` shows only the first 8 KiB.
    `gap`: not a line of the log but a mark; `text` says what is missing from `number` on.
    """

    number: int
    text: str
    t_ms: int
    length: int = 0
    truncated: bool = False
    gap: bool = False


@dataclass
class _Open:
    """The line being put together."""

    number: int
    t_ms: int
    shown: bytearray
    length: int = 0

    def add(self, data: bytes) -> None:
        self.shown += data[: SHOWN_BYTES - len(self.shown)]
        self.length += len(data)

    def close(self) -> Line:
        truncated = self.length > SHOWN_BYTES
        # Not final when truncated: the cut may have split a character, which is then left out.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(bytes(self.shown), final=not truncated).removesuffix("\r")
        return Line(self.number, text, self.t_ms, self.length, truncated)


class StreamReader:
    """One stream of one instance. `records`: those that the controller holds, in any order; `segments`: where the bytes
    of those are that have no object of their own, and whether those are gone.
    """

    def __init__(
        self,
        store: Store,
        run: str,
        instance: str,
        stream: str,
        records: Iterable[ChunkRecord],
        segments: Segments = NONE,
    ) -> None:
        self._store = store
        self._where = (run, instance, stream)
        self._segments = segments
        self._records = in_order(records)
        # Where each chunk ends, as a running maximum: a sender's false numbers can't unsort it.
        self._ends = list(accumulate((record.next_line for record in self._records), max))

    @property
    def ended_lines(self) -> int:
        """The number of the last line that ended with a newline; one more may be unfinished."""
        return self._ends[-1] - 1 if self._ends else 0

    def lines(self, first: int, count: int) -> list[Line]:
        """The lines numbered `first` to `first + count - 1`, and marks where some are missing.

        `count` is at most 5,000. Raises `StoreUnavailable`, `StoreRefused`.
        """
        first, count = max(first, 1), min(count, MAX_PAGE_LINES)
        return _masked([line for line in self._walk(first, first + count - 1) if line.number >= first or line.gap])

    def last(self, count: int) -> list[Line]:
        """The last `count` lines, an unfinished one included. Errors as `lines`."""
        if count < 1:
            return []
        return self.lines(self.ended_lines + 1 - count, count + 1)[-count:]

    def raw(self) -> Iterator[bytes]:
        """All bytes that are there, for a download; nothing stands in for what is missing."""
        for chunk in read_chunks(self._store, *self._where, self._records, self._segments):
            if chunk.raw:
                yield chunk.raw

    def _walk(self, first: int, last: int) -> Iterator[Line]:
        """Every line and mark that overlaps the range; lines before `first` may come too."""
        line: _Open | None = None
        begin = bisect_left(self._ends, first)
        for index in range(begin, len(self._records)):
            record = self._records[index]
            if record.seq != (self._records[index - 1].seq + 1 if index else 0):
                yield from _closed(line)
                line = None
                gap = self._ends[index - 1] if index else 1
                yield from _mark(gap, record.first_line, record.t_first_ms, first)
            if record.first_line > last:
                break
            if self._segments.lacks(record.seq):
                yield from _closed(line)
                line = None
                if index == begin or not self._segments.lacks(self._records[index - 1].seq):
                    yield from _mark(
                        record.first_line, self._until(index), record.t_first_ms, first, self._segments.gone
                    )
                continue
            line = line or _Open(record.first_line, record.t_first_ms, bytearray())
            if record.lines == 0 and (line.number < first or line.length >= SHOWN_BYTES):
                line.length += record.raw_bytes  # nothing of it is shown: no need to read it
                continue
            chunk = read_chunk(self._store, *self._where, record, self._segments)
            if chunk.damage:
                yield from _closed(line)
                line = None
                yield from _mark(record.first_line, record.next_line, record.t_first_ms, first, chunk.damage)
                continue
            *ended, rest = chunk.raw.split(b"\n")
            for piece in ended:
                line.add(piece)
                yield line.close()
                if line.number >= last:
                    return
                line = _Open(line.number + 1, record.t_first_ms, bytearray())
            line.add(rest)
        yield from _closed(line)

    def _until(self, index: int) -> int:
        """The line after those that are gone together with chunk `index`."""
        while index + 1 < len(self._records) and self._segments.lacks(self._records[index + 1].seq):
            index += 1
        return self._records[index].next_line


def _masked(lines: list[Line]) -> list[Line]:
    """Masked once more: rules may have been added since the machine masked them."""
    if not lines:
        return lines
    text = "\n".join(line.text for line in lines).encode("utf-8", "surrogatepass")
    texts = redact(text).decode("utf-8", "surrogatepass").split("\n")
    return [line if line.text == shown else replace(line, text=shown) for line, shown in zip(lines, texts, strict=True)]


def _closed(line: _Open | None) -> Iterator[Line]:
    """The line that was being put together, if it has anything in it."""
    if line is not None and line.length:
        yield line.close()


def _mark(first: int, next_line: int, t_ms: int, page_first: int, damage: str = "") -> Iterator[Line]:
    """A mark for the lines from `first` up to before `next_line`, unless all lie before the page."""
    if max(first, next_line - 1) >= page_first:
        text = missing_text(first, next_line)
        yield Line(first, f"{text}: {damage}" if damage else text, t_ms, gap=True)
