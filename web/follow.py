"""Fresh log lines of a running instance: from the tail in Redis, or from the archive while Redis is away."""

from __future__ import annotations

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


@dataclass(frozen=True)
class TailLine:
    stream: str
    number: int
    text: str


class Follower:
    """Follows every stream of one instance. Not thread-safe: the hub's thread owns it.

    A line is told once and in order, wherever it comes from: `_next` is the first line number of each
    stream that has not been told.
    """

    def __init__(self, client: Callable[[], Any], store: Callable[[], Store], run: str, instance: str):
        self._client, self._store = client, store
        self._run, self._instance = run, instance
        self._cursor = tail.START
        self._next: dict[str, int] = {}
        self._open: dict[str, tuple[int, bytes]] = {}
        self._begun = False
        self.live = True

    def poll(self, session: Session) -> list[TailLine]:
        """The lines that are new. `live` says whether they come from the tail. Raises nothing of Redis or S3."""
        try:
            frames, self._cursor = tail.read_since(self._client(), self._instance, self._cursor)
            self.live = True
        except tail.TailUnavailable:
            self.live = False
            self._open.clear()
            return self._from_archive(session)
        begun, self._begun = self._begun, True
        if not frames and not begun:
            return self._from_archive(session)  # a quiet machine: its last words are better than none
        return [line for frame in frames for line in self._lines(frame)]

    def _lines(self, frame: tail.TailFrame) -> list[TailLine]:
        number, begun = self._open.pop(frame.stream, (frame.first_line, b""))
        if number != frame.first_line:
            number, begun = frame.first_line, b""  # frames were lost: what was begun can't be ended
        *whole, rest = frame.data.split(b"\n")
        lines = []
        for data in whole:
            lines += self._tell(frame.stream, number, (begun + data)[:MAX_LINE])
            number, begun = number + 1, b""
        self._open[frame.stream] = (number, (begun + rest)[:MAX_LINE])
        return lines

    def _tell(self, stream: str, number: int, data: bytes) -> list[TailLine]:
        if number < self._next.get(stream, 1):
            return []
        self._next[stream] = number + 1
        return [TailLine(stream, number, visible(data.decode("utf-8", "replace").removesuffix("\r")))]

    def _from_archive(self, session: Session) -> list[TailLine]:
        lines: list[TailLine] = []
        places = archive.places_of(session, self._instance)
        for summary in queries.streams_of(session, [self._instance]):
            first = self._next.get(summary.stream, max(1, summary.lines - CATCH_UP + 1))
            if summary.lines < first:
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
                found = reader.lines(first, min(summary.lines - first + 1, 500))
            except StoreError:
                return lines
            for line in found:
                if not line.gap:
                    lines += self._tell(summary.stream, line.number, line.text[:MAX_LINE].encode())
        return lines
