"""Chunks back from the store, checked, in order, a few ahead of the reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from logs.chunks import ChunkRefused, open_frame
from logs.errors import NoSuchObject, TooLarge
from logs.store import Store
from logs.wire import MAX_FRAME_BYTES, ChunkRecord, chunk_key

READERS = 8
AHEAD = 32  # chunks in flight: at most 2 MiB raw


@dataclass(frozen=True)
class Chunk:
    """A chunk as the archive has it: `raw`, or `damage` (what is wrong) and no bytes."""

    record: ChunkRecord
    raw: bytes
    damage: str = ""


def read_chunk(store: Store, run: str, instance: str, stream: str, record: ChunkRecord) -> Chunk:
    """One chunk. An object that is lost or altered is a `damage`, not an error.

    Raises `StoreUnavailable` and `StoreRefused`.
    """
    try:
        frame = store.get(chunk_key(run, instance, stream, record.seq), MAX_FRAME_BYTES)
        return Chunk(record, open_frame(frame, record))
    except NoSuchObject:
        return Chunk(record, b"", f"chunk {record.seq} is lost from the store")
    except (ChunkRefused, TooLarge) as error:
        return Chunk(record, b"", f"chunk {record.seq} is damaged: {error}")


def read_chunks(store: Store, run: str, instance: str, stream: str, records: Iterable[ChunkRecord]) -> Iterator[Chunk]:
    """Many chunks, in the order of `records`. Bounded memory. Errors as `read_chunk`."""
    with ThreadPoolExecutor(READERS, thread_name_prefix="chunks") as pool:
        waiting: deque[Future[Chunk]] = deque()
        try:
            for record in records:
                waiting.append(pool.submit(read_chunk, store, run, instance, stream, record))
                if len(waiting) >= AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
