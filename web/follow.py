"""Fresh log lines of a running instance: from the tail in Redis, or from the archive while Redis is away."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from jobs.domain import archive
from jobs.domain.models import Chunk
from logs import tail
from logs.ansi import visible
from logs.errors import StoreError
from logs.reader import StreamReader
from logs.store import Store
from logs.wire import ChunkRecord
from web import queries

MAX_LINE = 4000
CATCH_UP = 60
"""How many lines of a stream are shown at first when they come from the archive."""
AT_ONCE = 500
FILLED = 1000
"""So many lines that the tail lost are waited for. What is more goes by too fast to be read, and is in the archive."""
PATIENCE_S = 6.0


@dataclass(frozen=True)
class TailLine:
    stream: str
    number: int
    text: str


@dataclass
class _Hole:
    """Lines that the tail lost, `last` among them; what came after waits in `held` until the archive has those."""

    since_s: float
    last: int
    held: deque[tuple[int, bytes]]


class Follower:
    """Follows every stream of one instance. Not thread-safe: the hub's thread owns it.

    A line is told once and in order, wherever it comes from: `_next` is the first line number of each
    stream that has not been told. Where the tail jumps, the archive fills the hole, a chunk's 2 s later.
    """

    def __init__(
        self,
        client: Callable[[], Any],
        store: Callable[[], Store],
        run: str,
        instance: str,
        clock_s: Callable[[], float],
    ):
        self._client, self._store = client, store
        self._run, self._instance = run, instance
        self._clock_s = clock_s
        self._cursor = tail.START
        self._next: dict[str, int] = {}
        self._open: dict[str, tuple[int, bytes]] = {}
        self._holes: dict[str, _Hole] = {}
        self._whole: dict[str, int] = {}  # the line after what the archive told, where it has none of it
        self._begun = False
        self.live = True

    def poll(self, session: Session, lines: list[TailLine]) -> None:
        """Append the lines that are new. `live` says whether they come from the tail. Raises nothing of Redis or S3;
        after an error of the database, what was appended counts as told."""
        try:
            frames, self._cursor = tail.read_since(self._client(), self._instance, self._cursor)
            self.live = True
        except tail.TailUnavailable:
            self.live = False
            self._open.clear()
            self._holes.clear()
            self._from_archive(session, lines)
            return
        begun = self._begun
        if not frames and not begun:
            self._from_archive(session, lines)  # a quiet machine: its last words are better than none
            self._begun = True
            return
        for frame in frames:
            self._take(frame, lines)
        if not begun:
            for summary in queries.streams_of(session, [self._instance]):
                self._next.setdefault(summary.stream, summary.lines + 1)
            self._begun = True
        if self._holes:
            self._fill(session, lines)

    def _take(self, frame: tail.TailFrame, lines: list[TailLine]) -> None:
        stream = frame.stream
        number, begun = self._open.pop(stream, (0, b""))
        if number != frame.first_line:
            self._jumped(stream, frame.first_line)
            number, begun = frame.first_line, b""
        hole = self._holes.get(stream)
        *whole, rest = frame.data.split(b"\n")
        for data in whole:
            line = (begun + data)[:MAX_LINE]
            if hole is None:
                self._tell(stream, number, line, lines)
            else:
                hole.held.append((number, line))
            number, begun = number + 1, b""
        self._open[stream] = (number, (begun + rest)[:MAX_LINE])

    def _jumped(self, stream: str, first_line: int) -> None:
        """A frame that does not go on where we were: after lost ones its first line may be the end of one, so that is
        missing too. Right after what the archive told it is whole.
        """
        if first_line == self._next.get(stream) == self._whole.get(stream):
            return
        # A stream that was not there at first is new: what is before its first frame was lost.
        since = self._next.get(stream, 1 if self._begun else first_line + 1)
        if first_line < since or (first_line == 1 and stream not in self._next):
            return
        self._next[stream] = since
        begun_s = self._holes[stream].since_s if stream in self._holes else self._clock_s()
        self._holes[stream] = _Hole(begun_s, first_line, deque(maxlen=FILLED))

    def _fill(self, session: Session, lines: list[TailLine]) -> None:
        wanted = {s: hole.last for s, hole in self._holes.items() if hole.last - self._next[s] < FILLED}
        if wanted:
            self._from_archive(session, lines, wanted)
        for stream, hole in list(self._holes.items()):
            over = self._clock_s() - hole.since_s > PATIENCE_S
            if over or stream not in wanted or self._next[stream] > hole.last:
                del self._holes[stream]
                for number, data in hole.held:
                    self._tell(stream, number, data, lines)

    def _tell(self, stream: str, number: int, data: bytes, lines: list[TailLine]) -> None:
        if number >= self._next.get(stream, 1):
            self._next[stream] = number + 1
            lines.append(TailLine(stream, number, visible(data.decode("utf-8", "replace").removesuffix("\r"))))

    def _from_archive(self, session: Session, lines: list[TailLine], until: dict[str, int] | None = None) -> None:
        """What is new there: of every stream, or of those in `until` up to that line."""
        places = archive.places_of(session, self._instance)
        for summary in queries.streams_of(session, [self._instance]):
            if until is not None and summary.stream not in until:
                continue
            last = summary.lines if until is None else min(summary.lines, until[summary.stream])
            first = self._next.get(summary.stream, max(1, summary.lines - CATCH_UP + 1))
            if last < first:
                continue
            # The chunks that hold the new lines, and the one before them, where the first may have begun.
            rows = session.execute(
                select(*archive.RECORD)
                .where(
                    Chunk.instance_id == self._instance,
                    Chunk.stream == summary.stream,
                    Chunk.first_line + Chunk.lines >= first,
                )
                .order_by(Chunk.seq)
            )
            records = [ChunkRecord(*row) for row in rows]
            reader = StreamReader(
                self._store(), self._run, self._instance, summary.stream, records, places[summary.stream]
            )
            try:
                found = reader.lines(first, min(last - first + 1, AT_ONCE) + 1)
            except StoreError:
                return
            self._whole[summary.stream] = 0 if any(line.number > last for line in found) else last + 1
            for line in found:
                if line.number <= last and not line.gap:
                    self._tell(summary.stream, line.number, line.text[:MAX_LINE].encode(), lines)
