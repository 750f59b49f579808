"""Chunks back from the store, checked, in order, a few ahead of the reader: from segments or objects of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from logs.chunks import ChunkRefused, open_frame
from logs.errors import NoSuchObject, OutOfRange, TooLarge
from logs.segments import NONE, Segment, Segments, split
from logs.store import Store
from logs.wire import MAX_FRAME_BYTES, MIB, ChunkRecord, chunk_key

READERS = 8
PIECE_BYTES = MIB  # raw bytes that one request brings at most
AHEAD_BYTES = 8 * MIB  # raw bytes in flight
AHEAD_PIECES = 64


@dataclass(frozen=True)
class Chunk:
    """A chunk as the archive has it: `raw`, or `damage` (what is wrong) and no bytes."""

    record: ChunkRecord
    raw: bytes
    damage: str = ""


@dataclass(frozen=True)
class _Piece:
    """Consecutive chunks that come by one request: a stretch of `segment`, or one chunk by itself, or nothing of one
    that is `gone`.
    """

    records: list[ChunkRecord]
    segment: Segment | None
    gone: str = ""

    @property
    def raw_bytes(self) -> int:
        return sum(record.raw_bytes for record in self.records)


def read_chunk(
    store: Store, run: str, instance: str, stream: str, record: ChunkRecord, segments: Segments = NONE
) -> Chunk:
    """One chunk. An object that is lost or altered is a `damage`, not an error.

    Raises `StoreUnavailable` and `StoreRefused`.
    """
    return _read(store, (run, instance, stream), next(_pieces([record], segments)))[0]


def read_frame(
    store: Store, run: str, instance: str, stream: str, record: ChunkRecord, segments: Segments = NONE
) -> bytes:
    """The frame of one chunk, as it came and checked again.

    Raises `NoSuchObject`, `OutOfRange`, `TooLarge`, `ChunkRefused`; `StoreUnavailable`, `StoreRefused`.
    """
    frame = _frames(store, (run, instance, stream), _Piece([record], segments.of(record.seq)))[0]
    open_frame(frame, record)
    return frame


def read_chunks(
    store: Store,
    run: str,
    instance: str,
    stream: str,
    records: Iterable[ChunkRecord],
    segments: Segments = NONE,
) -> Iterator[Chunk]:
    """Many chunks, in the order of `records`. Bounded memory. Errors as `read_chunk`."""
    with ThreadPoolExecutor(READERS, thread_name_prefix="chunks") as pool:
        waiting: deque[tuple[int, Future[list[Chunk]]]] = deque()
        flying = 0
        try:
            for piece in _pieces(records, segments):
                waiting.append((piece.raw_bytes, pool.submit(_read, store, (run, instance, stream), piece)))
                flying += piece.raw_bytes
                while len(waiting) >= AHEAD_PIECES or flying > AHEAD_BYTES:
                    size, first = waiting.popleft()
                    yield from first.result()
                    flying -= size
            while waiting:
                yield from waiting.popleft()[1].result()
        finally:
            for _, future in waiting:
                future.cancel()


def _pieces(records: Iterable[ChunkRecord], segments: Segments) -> Iterator[_Piece]:
    together: list[ChunkRecord] = []
    held, size = None, 0
    for record in records:
        segment = segments.of(record.seq)
        goes_on = (
            segment is not None
            and segment is held
            and record.seq == together[-1].seq + 1
            and size + record.raw_bytes <= PIECE_BYTES
        )
        if together and not goes_on:
            yield _Piece(together, held, "" if held else segments.gone)
            together, size = [], 0
        together.append(record)
        held, size = segment, size + record.raw_bytes
    if together:
        yield _Piece(together, held, "" if held else segments.gone)


def _read(store: Store, where: tuple[str, str, str], piece: _Piece) -> list[Chunk]:
    records = piece.records
    if piece.gone:
        return [Chunk(record, b"", piece.gone) for record in records]
    try:
        frames = _frames(store, where, piece)
    except NoSuchObject:
        return [Chunk(record, b"", f"chunk {record.seq} is lost from the store") for record in records]
    except (OutOfRange, TooLarge) as error:
        return [Chunk(record, b"", f"chunk {record.seq} is damaged: {error}") for record in records]
    return [_opened(record, frame) for record, frame in zip(records, frames, strict=True)]


def _frames(store: Store, where: tuple[str, str, str], piece: _Piece) -> list[bytes]:
    first, last = piece.records[0].seq, piece.records[-1].seq
    if piece.segment is None:
        return [store.get(chunk_key(*where, first), MAX_FRAME_BYTES)]
    start, lengths = piece.segment.stretch(first, last)
    return split(store.get_stretch(piece.segment.key(*where), start, sum(lengths)), lengths)


def _opened(record: ChunkRecord, frame: bytes) -> Chunk:
    try:
        return Chunk(record, open_frame(frame, record))
    except ChunkRefused as error:
        return Chunk(record, b"", f"chunk {record.seq} is damaged: {error}")
