"""What is missing from a stream, found from its records and the sender's own count. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from logs.chunks import ChunkRefused, check_successor
from logs.wire import ChunkRecord, chain_hash


@dataclass(frozen=True)
class StreamEnd:
    """The sender's account of a stream when it sealed. `chain`: `chain_hash` of its last record."""

    chunks: int
    lines: int
    chain: str


@dataclass(frozen=True)
class Gap:
    """Chunks `first_seq` to `last_seq` are not there. Between them lay the lines from `first_line`
    up to before `next_line`, so far as the records on both sides can tell; the same number twice
    means a part of one line. `after_bytes`: how much of the stream came before.
    """

    first_seq: int
    last_seq: int
    first_line: int
    next_line: int
    after_bytes: int

    @property
    def text(self) -> str:
        """What an operator reads."""
        return missing_text(self.first_line, self.next_line)


def missing_text(first: int, next_line: int) -> str:
    """What an operator reads where the lines from `first` up to before `next_line` are missing."""
    if next_line <= first:
        return f"part of line {first} missing"
    if next_line == first + 1:
        return f"line {first} missing"
    return f"lines {first}-{next_line - 1} missing"


def in_order(records: Iterable[ChunkRecord]) -> list[ChunkRecord]:
    """By number, each number once."""
    return [record for _, record in sorted({record.seq: record for record in records}.items())]


def find_gaps(records: list[ChunkRecord], end: StreamEnd | None) -> list[Gap]:
    """Gaps before, between and, if the sender's `end` is known, after `records` (`in_order`)."""
    gaps: list[Gap] = []
    seq, line, seen = 0, 1, 0
    for record in records:
        if record.seq != seq:
            gaps.append(Gap(seq, record.seq - 1, line, record.first_line, seen))
        seq, line, seen = record.seq + 1, record.next_line, seen + record.raw_bytes
    if end is not None and end.chunks > seq:
        gaps.append(Gap(seq, end.chunks - 1, line, end.lines + 1, seen))
    return gaps


def broken_link(records: list[ChunkRecord], end: StreamEnd | None) -> int | None:
    """The number of the first chunk that does not follow from the one before it, where both are
    there; or of the last, if the sender's `end` names another. None if all links hold.
    """
    previous: ChunkRecord | None = None
    for record in records:
        follows = previous is not None and record.seq == previous.seq + 1
        if follows or record.seq == 0:
            try:
                check_successor(previous, record)
            except ChunkRefused:
                return record.seq
        previous = record
    if previous is None or end is None or end.chunks > previous.seq + 1:
        return None
    agreed = end.chunks == previous.seq + 1 and end.chain == chain_hash(previous)
    return None if agreed else previous.seq
