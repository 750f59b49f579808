"""Which chunks of a view could hold a line that a search in it asks for: of the others no line is looked at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from jobs.domain.search_models import ChunkGrams
from logs.grams import BYTES, Bitmap, may_hold, needed, unpacked
from logs.query import Query
from web.log_index import Chunks, Flags, Ints, View
from web.log_source import Source

Looking = Callable[[Ints], Ints]
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


def looking(source: Source, query: Query) -> Looking:
    """What leaves out of some chunks those in which no line ends that matches as it was written."""

    def narrowed(places: Ints) -> Ints:
        view = source.view
        holding: set[tuple[int, int]] = set()
        for stream in set(view.stream[places].tolist()):
            seqs = {int(seq) for seq in view.seq[places[view.stream[places] == stream]]}
            holding |= {(stream, seq) for seq in _holding(source, stream, seqs, query)}
        kept = [(int(view.stream[i]), int(view.seq[i])) in holding for i in places]
        left: Ints = places[np.array(kept, dtype=np.bool_)]
        return left

    return narrowed


def _holding(source: Source, stream: int, seqs: set[int], query: Query) -> set[int]:
    """The chunks in which matching lines end, and those whose first line began in one that is not read here."""
    found: set[int] = set()
    run: list[tuple[int, bytes]] = []
    open_end = dict(
        zip(source.view.chunks[stream].seq.tolist(), source.view.chunks[stream].open_end.tolist(), strict=True)
    )
    for chunk in source.raw(stream, seqs):
        seq = chunk.record.seq
        if run and run[-1][0] != seq - 1:
            found |= _in_run(run, query)
            run = []
        if not run and open_end.get(seq - 1, 1):
            found.add(seq)
        run.append((seq, chunk.raw.replace(b"\r\n", b"\n")))
    return found | _in_run(run, query)


def _in_run(run: list[tuple[int, bytes]], query: Query) -> set[int]:
    data = b"".join(raw for _, raw in run)
    ends = np.cumsum([len(raw) for _, raw in run])
    # A line ends where its newline is; the last one may go on in a chunk that is not read here.
    return {run[min(int(np.searchsorted(ends, end, "right")), len(run) - 1)][0] for _, end in query.lines(data)}
