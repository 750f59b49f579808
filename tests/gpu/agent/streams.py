"""A stream and what it holds, for tests that need no agent."""

from __future__ import annotations

from pathlib import Path

from gpu.agent.spool import Spool
from gpu.agent.stream import Stream
from logs.chunks import check_successor, open_frame


class Clock:
    """A clock moved by hand; `ms` and `s` of the same time."""

    def __init__(self, now_s: float = 1_796_000_000.0):
        self.now_s = now_s

    def s(self) -> float:
        return self.now_s

    def ms(self) -> int:
        return int(self.now_s * 1000)


def stream_in(folder: Path, clock: Clock, name: str = "service") -> Stream:
    return Stream(name, Spool(folder / "spool" / name), [], clock.ms)


def content(stream: Stream) -> bytes:
    """All that was cut so far; the chain is checked."""
    stream.flush()
    raw, before = b"", None
    for _, record, frame in stream.unacknowledged():
        check_successor(before, record)
        raw, before = raw + open_frame(frame, record), record
    return raw
