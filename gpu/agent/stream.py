"""One stream on its way: bytes in; masked, numbered, hashed chunks out, and the newest bytes for the live view."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from gpu.agent.spool import Spool, SpoolFull
from gpu.protocol import StreamEnd
from logs.chunks import ChunkCutter
from logs.redact import Redactor
from logs.wire import TAIL_FRAME_BYTES, ChunkRecord

# Cut before 2 s are over, so that a chunk is in the archive when its first byte is 2 s old.
EARLY_MS = 600
HELD_MS = 500


class Source:
    """One writer of a stream: a program, a file, the agent itself. Lines of several are never mixed: each is masked by
    itself, and what of a line is given out early ends where another source begins to speak."""

    def __init__(self, stream: Stream, literals: Iterable[str]):
        self._stream = stream
        self.redactor = Redactor(literals)
        self.held_since: int | None = None

    def feed(self, data: bytes) -> None:
        """Bytes as they were written, any number."""
        self._stream.take(self, data)

    def close(self) -> None:
        """Nothing more comes: an unfinished line is given out."""
        self._stream.drop(self)


class Stream:
    """Thread-safe. Whoever reads a program or a file feeds a source; a clock ticks; one uploader takes chunks in order.

    Once `stop`ped (a quota, a lost chunk) it still counts, and shows the tail, but keeps nothing more: `gap` says why.
    """

    def __init__(self, name: str, spool: Spool, literals: Iterable[str], clock_ms: Callable[[], int]):
        self.name = name
        self.gap = ""
        self.trouble = ""
        self._spool = spool
        self._clock_ms = clock_ms
        self._literals = list(literals)
        self._sources: list[Source] = []
        self._speaker: Source | None = None
        self._in_line = False
        self._cutter = ChunkCutter(name)
        self._changed = threading.Condition()
        self._raw_bytes = 0
        self._acknowledged = 0
        self._tail = bytearray()
        self._next_line = 1

    def source(self) -> Source:
        """One more writer."""
        with self._changed:
            source = Source(self, self._literals)
            self._sources.append(source)
            return source

    def take(self, source: Source, data: bytes) -> None:
        """What `Source.feed` does."""
        with self._changed:
            now = self._clock_ms()
            since = now if source.held_since is None else source.held_since
            self._give(source, source.redactor.feed(data), since)
            if b"\n" in data:
                source.held_since = None if data.endswith(b"\n") else now
            else:
                source.held_since = since
            self._cut_due(now)

    def drop(self, source: Source) -> None:
        """What `Source.close` does."""
        with self._changed:
            self._finish(source)
            if source in self._sources:
                self._sources.remove(source)

    def tick(self) -> None:
        """Cut what has waited long enough; an unfinished line does not wait for its end."""
        with self._changed:
            now = self._clock_ms()
            for source in self._sources:
                since = source.held_since
                if since is None or 0 <= now - since < HELD_MS:
                    continue
                if released := source.redactor.release():
                    source.held_since = None
                    self._give(source, released, since)
            self._cut_due(now)

    def flush(self) -> None:
        """Cut everything there is."""
        with self._changed:
            for source in self._sources:
                self._finish(source)
            while (chunk := self._cutter.cut(self._clock_ms())) is not None:
                self._keep(*chunk)

    def mask_also(self, literal: str) -> None:
        """A secret that is known only now."""
        with self._changed:
            self._literals.append(literal)
            for source in self._sources:
                source.redactor.also(literal)

    def end(self) -> StreamEnd:
        """The account of all that was fed and cut, kept or not."""
        with self._changed:
            cutter = self._cutter
            return StreamEnd(cutter.seq, cutter.line - 1, self._raw_bytes, cutter.prev_sha256)

    def next_chunks(self, most: int, timeout_s: float) -> list[tuple[ChunkRecord, bytes]]:
        """The first chunks that are not acknowledged, at most so many; waits for one. Empty: there is none (yet), or no
        more is kept."""
        chunks: list[tuple[ChunkRecord, bytes]] = []
        with self._changed:
            if not self._pending():
                self._changed.wait(timeout_s)
            for seq in range(self._acknowledged, self._acknowledged + min(most, self._pending())):
                chunk = self._spool.get(seq)
                if chunk is None:
                    if not chunks:
                        self._stop(f"chunk {seq} could not be read back from the disk")
                    break
                chunks.append(chunk)
        return chunks

    def acknowledge(self, next_seq: int) -> None:
        """The controller has everything before `next_seq`; where that lies behind us, ship from there again."""
        with self._changed:
            for seq in range(self._acknowledged, min(next_seq, self._cutter.seq)):
                self._spool.acknowledged(seq)
            self._acknowledged = min(next_seq, self._cutter.seq)
            self._changed.notify_all()

    def acknowledged(self) -> int:
        """The first chunk that the controller may lack."""
        with self._changed:
            return self._acknowledged

    def stop(self, gap: str) -> None:
        """Keep and ship nothing more; `gap` names what is missing, and why."""
        with self._changed:
            self._stop(gap)

    def pending(self) -> int:
        """How many chunks wait to be shipped."""
        with self._changed:
            return self._pending()

    def unacknowledged(self) -> Iterator[tuple[str, ChunkRecord, bytes]]:
        """What the controller does not have, as far as it was kept."""
        with self._changed:
            first, end = self._acknowledged, self._cutter.seq
        for seq in range(first, end):
            with self._changed:
                chunk = self._spool.get(seq)
            if chunk is None:
                return
            yield self.name, *chunk

    def take_tail(self) -> tuple[int, bytes] | None:
        """The newest bytes since the last call (at most a tail frame), and the line that they begin in."""
        with self._changed:
            if not self._tail:
                return None
            data = bytes(self._tail)
            self._tail.clear()
            return self._next_line - data.count(b"\n"), data

    def _give(self, source: Source, masked: bytes, since_ms: int) -> None:
        if not masked:
            return
        if self._in_line and self._speaker is not source:
            masked = b"\n" + masked
        self._speaker, self._in_line = source, not masked.endswith(b"\n")
        self._cutter.feed(masked, since_ms)
        self._raw_bytes += len(masked)
        self._next_line += masked.count(b"\n")
        self._tail += masked
        if len(self._tail) > TAIL_FRAME_BYTES:
            cut = len(self._tail) - TAIL_FRAME_BYTES
            newline = self._tail.find(b"\n", cut)
            del self._tail[: newline + 1 if 0 <= newline < len(self._tail) - 1 else cut]

    def _finish(self, source: Source) -> None:
        since = self._clock_ms() if source.held_since is None else source.held_since
        source.held_since = None
        self._give(source, source.redactor.flush(), since)

    def _cut_due(self, now: int) -> None:
        while self._cutter.due(now + EARLY_MS) or self._cutter.due(now):
            chunk = self._cutter.cut(now)
            if chunk is not None:
                self._keep(*chunk)

    def _keep(self, record: ChunkRecord, frame: bytes) -> None:
        if self.gap:
            return
        try:
            self.trouble = self._spool.add(record, frame)
        except SpoolFull as error:
            self._stop(f"from line {record.first_line} on nothing could be kept: {error}")
        self._changed.notify_all()

    def _pending(self) -> int:
        return 0 if self.gap else self._cutter.seq - self._acknowledged

    def _stop(self, gap: str) -> None:
        self.gap = self.gap or gap
        self._changed.notify_all()
