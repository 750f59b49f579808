"""Which chunks of a view could hold a line that a search in it asks for: the others are not read."""

from __future__ import annotations

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from jobs.domain.search_models import ChunkGrams
from logs.grams import BYTES, Bitmap, may_hold, needed, unpacked
from logs.query import Query
from web.log_index import Chunks, Flags, View

AT_ONCE = 2_000  # bitmaps: 8 MB


def possible(session: Session, instance_id: str, view: View, query: Query) -> Flags:
    """For each chunk of `view`: could a line that ends in it match? A chunk of which nothing is known could."""
    flags: Flags = np.ones(len(view.seq), dtype=np.bool_)
    branches = [[bits for text in branch if len(bits := needed(text))] for branch in query.branches]
    if not branches or not all(branches):
        return flags
    for number, (stream, chunks) in enumerate(zip(view.streams, view.chunks, strict=True)):
        could = np.concatenate(
            [
                np.logical_or.reduce([_all_may_hold(table, branch) for branch in branches])
                for table in _tables(session, instance_id, stream, chunks)
            ]
        )
        mine = np.flatnonzero(view.stream == number)
        flags[mine] = could[np.searchsorted(chunks.seq, view.seq[mine])]
    return flags


def _all_may_hold(table: Bitmap, branch: list[np.ndarray]) -> Flags:
    held: Flags = np.logical_and.reduce([may_hold(table, bits) for bits in branch])
    return held


def _tables(session: Session, instance_id: str, stream: str, chunks: Chunks) -> list[Bitmap]:
    """The bitmaps of the chunks, each united with those of the chunks in which its first line lies too."""
    tables, carried = [], np.zeros(BYTES, dtype=np.uint8)
    full = np.full(BYTES, 255, dtype=np.uint8)
    for at in range(0, len(chunks), AT_ONCE):
        some = Chunks(chunks.table[at : at + AT_ONCE])
        rows = session.execute(
            select(ChunkGrams.seq, ChunkGrams.bitmap).where(
                ChunkGrams.instance_id == instance_id,
                ChunkGrams.stream == stream,
                ChunkGrams.seq.between(int(some.seq[0]), some.last_seq),
            )
        )
        known = {seq: np.frombuffer(unpacked(kept), dtype=np.uint8) for seq, kept in rows}
        table = np.empty((len(some), BYTES), dtype=np.uint8)
        for i in range(len(some)):
            own = known.get(int(some.seq[i]), full)
            table[i] = own | carried
            # What goes on in the next chunk began in this one, or, where no line ends in it, before.
            goes_on = bool(some.open_end[i]) or int(some.seq[i]) not in known
            carried = (own if some.lines[i] else table[i]) if goes_on else np.zeros(BYTES, dtype=np.uint8)
        tables.append(table)
    return tables
