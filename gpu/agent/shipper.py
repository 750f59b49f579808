"""All streams of one agent: the clock that cuts them, the threads that upload them, the tail, the agent's own log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpu.agent.client import Client, ControllerError, Refused, Unreachable, delays
from gpu.agent.spool import Spool
from gpu.agent.stream import Stream
from gpu.protocol import ChunkAck, StreamEnd
from logs.redact import redact
from logs.wire import MAX_BATCH_CHUNKS, MAX_STREAMS_PER_INSTANCE, TAIL_INTERVAL_S, ChunkRecord

SETUP = "setup"
SPOOL = "spool"
TICK_S = 0.1
TROUBLE_LINE_S = 30.0


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Shipper:
    """Opens streams and ships them until told to stop. `log` writes the agent's own lines to `setup`."""

    def __init__(self, work: Path, literals: list[str], clock_ms: Callable[[], int] = wall_clock_ms):
        self._folder = work / SPOOL
        self._literals = list(literals)
        self._clock_ms = clock_ms
        self._client: Client | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._streams: dict[str, Stream] = {}
        self._told: dict[str, str] = {}
        self._setup_closed = False
        self._own = self.stream(SETUP).source()
        threading.Thread(target=self._tick, name="tick", daemon=True).start()

    def start(self, client: Client, token: str) -> None:
        """The instance is registered: everything written so far, and from now on, is shipped. `token` is masked."""
        with self._lock:
            self._client = client
            self._literals.append(token)
            streams = list(self._streams.values())
        for stream in streams:
            stream.mask_also(token)
            self._upload_in_background(stream)
        threading.Thread(target=self._ship_tails, name="tail", daemon=True).start()

    def stream(self, name: str) -> Stream:
        """The stream of that name, opened if need be. Raises ValueError for a bad name or one too many."""
        with self._lock:
            if name in self._streams:
                return self._streams[name]
            if len(self._streams) >= MAX_STREAMS_PER_INSTANCE:
                raise ValueError(f"stream {name}: an instance has at most {MAX_STREAMS_PER_INSTANCE}")
            stream = Stream(name, Spool(self._folder / name), self._literals, self._clock_ms)
            self._streams[name] = stream
            started = self._client is not None
        if started:
            self._upload_in_background(stream)
        return stream

    def log(self, line: str) -> None:
        """One line of the agent's own, to `setup`, and to stderr, which the provider keeps."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock_ms() / 1000))
        text = f"{stamp} {line}\n".encode(errors="replace")
        if not self._setup_closed:
            self._own.feed(text)
        sys.stderr.write(redact(text, self._literals).decode(errors="replace"))

    def close_setup(self) -> None:
        """Cut what every stream holds, tell the troubles, and from now on log to stderr only: the end of `setup` is
        about to be told."""
        self.flush()
        for stream in self._all():
            self._tell(stream)
        self._setup_closed = True
        self.flush()

    def flush(self) -> None:
        """Cut what every stream still holds."""
        for stream in self._all():
            stream.flush()

    def drained(self) -> bool:
        """True when the controller has all that it will get."""
        return not any(stream.pending() for stream in self._all())

    def pending(self) -> int:
        """Chunks that wait."""
        return sum(stream.pending() for stream in self._all())

    def ends(self) -> dict[str, StreamEnd]:
        """The account of every stream; streams that never got a byte are left out."""
        ends = {stream.name: stream.end() for stream in self._all()}
        return {name: end for name, end in ends.items() if end.chunks}

    def gaps(self) -> dict[str, str]:
        """What is missing of which stream, and why."""
        return {stream.name: stream.gap for stream in self._all() if stream.gap}

    def ship_again(self, missing: dict[str, int]) -> None:
        """The controller lacks everything from that chunk on."""
        for name, seq in missing.items():
            if name in self._streams and seq >= 0:
                self._streams[name].acknowledge(seq)

    def unacknowledged(self) -> Iterator[tuple[str, ChunkRecord, bytes]]:
        """What the controller does not have: the agent's own lines first, they explain the rest."""
        for stream in self._all():
            yield from stream.unacknowledged()

    def acknowledged(self) -> dict[str, int]:
        """The first chunk of each stream that the controller may lack."""
        return {stream.name: stream.acknowledged() for stream in self._all()}

    def stop(self) -> None:
        """Ship nothing more."""
        self._stopping.set()

    def _all(self) -> list[Stream]:
        with self._lock:
            return list(self._streams.values())

    def _tick(self) -> None:
        while not self._stopping.wait(TICK_S):
            for stream in self._all():
                stream.tick()
                self._tell(stream)

    def _tell(self, stream: Stream) -> None:
        """Say once that a stream has a gap or is kept in memory; the disk may be full, so stderr alone won't do."""
        news = stream.gap or (f"its chunks are kept in memory: {stream.trouble}" if stream.trouble else "")
        if news and self._told.get(stream.name) != news:
            self._told[stream.name] = news
            self.log(f"stream {stream.name}: {news}")

    def _upload_in_background(self, stream: Stream) -> None:
        threading.Thread(target=self._upload, args=(stream,), name=f"upload-{stream.name}", daemon=True).start()

    def _upload(self, stream: Stream) -> None:
        """Chunks in order, for ever, many at once where many wait: a store or a controller that is away for minutes is
        waited for."""
        assert self._client is not None
        waits, told_at, most = delays(), 0.0, MAX_BATCH_CHUNKS
        while not self._stopping.is_set():
            chunks = stream.next_chunks(most, timeout_s=0.5)
            if not chunks:
                continue
            first = chunks[0][0]
            try:
                ack = self._send(stream.name, chunks)
                if not ack.stored and ack.next_seq == first.seq:
                    raise Unreachable("the controller does not say why it stored nothing")
                stream.acknowledge(ack.next_seq)
                waits = delays()
            except Refused as error:
                if error.status in (401, 403):  # the lease decides when that is final
                    self._stopping.wait(5.0)
                elif len(chunks) > 1:
                    most = 1  # one of them is refused, or the controller is too old for many: what can go, goes
                else:
                    stream.stop(f"from line {first.first_line} on the controller takes nothing more: {error}")
            except Unreachable as error:
                if time.monotonic() - told_at > TROUBLE_LINE_S:
                    told_at = time.monotonic()
                    self.log(f"stream {stream.name}: chunk {first.seq} has to wait: {error}")
                self._stopping.wait(next(waits))

    def _send(self, name: str, chunks: list[tuple[ChunkRecord, bytes]]) -> ChunkAck:
        assert self._client is not None
        return self._client.put_chunk(name, *chunks[0]) if len(chunks) == 1 else self._client.put_chunks(name, chunks)

    def _ship_tails(self) -> None:
        assert self._client is not None
        while not self._stopping.wait(TAIL_INTERVAL_S):
            for stream in self._all():
                tail = stream.take_tail()
                if tail is None:
                    continue
                try:
                    self._client.put_tail(stream.name, *tail)
                except ControllerError:
                    self._stopping.wait(1.0)  # best effort: the chunks carry the same bytes
                    break
