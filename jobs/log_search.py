"""Search over the logs of all runs: SQL says which chunks could hold what is asked, the archive is read for those only.

Newest machines first, each stream in its order. Chunks are ruled out by their trigrams (`logs.grams`); one without a
bitmap is read. Chunks whose last line goes on in the next one are taken together, so that no line is missed at their
edges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.orm import Session

from jobs.domain import archive
from jobs.domain.archive_models import Archive
from jobs.domain.models import Chunk, Instance, Run
from jobs.domain.search_models import ChunkGrams
from logs.frames import read_chunks
from logs.grams import BYTES, may_hold, needed, unpacked
from logs.levels import LEVELS, level_of
from logs.query import Query
from logs.redact import redact
from logs.segments import Segments
from logs.store import Store
from logs.wire import ChunkRecord

AT_ONCE, CHUNKS_AT_ONCE = 64, 4_000  # instances and chunks looked up by one statement: 16 MB of bitmaps
SHOWN = 400  # bytes of a line that are shown
MASKED = 64 * 1024  # of a neighbouring line
TOGETHER_FIRST, TOGETHER = 4, 128  # chunks read by one go: few at first for an early hit, then 8 MB
MAX_JOINED = 320  # chunks taken together where a line runs through them: 20 MB
TICK_S = 0.5
FULL = bytes([255]) * BYTES


@dataclass(frozen=True)
class Scope:
    """Where to look: empty means everywhere. Times bound what a chunk holds; `level` is the least one."""

    run: str = ""
    machine: str = ""
    gpu: str = ""
    image: str = ""
    stream: str = ""
    outcome: str = ""
    level: str = ""
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True)
class Hit:
    """A line that matches, with the line before and after it where they are at hand."""

    run_id: str | None
    instance_id: str
    machine_id: str
    stream: str
    line: int
    text: bytes
    before: bytes
    after: bytes
    t_ms: int


@dataclass
class Progress:
    """How far a search is. Bytes are raw ones: `looked` were read or ruled out."""

    looked_bytes: int = 0
    read_bytes: int = 0
    hits: int = 0
    unread: int = 0
    ended: str = ""
    instances: int = field(default=0)


@dataclass(frozen=True)
class _Piece:
    record: ChunkRecord
    open_end: bool
    bitmap: bytes


@dataclass(frozen=True)
class _Stream:
    name: str
    pieces: list[_Piece]
    segments: Segments


def search(
    session: Session,
    store: Store,
    query: Query,
    scope: Scope,
    *,
    clock_s: Callable[[], float],
    deadline_s: float,
    limit: int,
    progress: Progress,
) -> Iterator[Hit | None]:
    """Hits as they are found, and None twice a second as a sign of life; `progress` is kept up to date, and says at the
    end why it ended.

    Raises `StoreError` while the archive can't be read.
    """
    until, tick = clock_s() + deadline_s, clock_s() + TICK_S
    for instance, streams in _instances(session, scope):
        progress.instances += 1
        for stream in streams:
            for group in _groups(stream.pieces, query, progress):
                for hit in _in_group(store, query, scope, instance, stream, group, progress):
                    progress.hits += 1
                    yield hit
                    if progress.hits >= limit:
                        progress.ended = f"the first {limit} hits"
                        return
                    if clock_s() > until:
                        break
                if (now := clock_s()) > until:
                    progress.ended = f"stopped after {deadline_s:.0f} s"
                    return
                if now > tick:
                    tick = now + TICK_S
                    yield None
    progress.ended = "everything was searched"


def _instances(session: Session, scope: Scope) -> Iterator[tuple[Instance, list[_Stream]]]:
    batch: list[str] = []
    chunks = 0
    for instance_id, count in [*session.execute(_wanted(scope)), ("", 0)]:
        if batch and (not instance_id or len(batch) >= AT_ONCE or chunks + count > CHUNKS_AT_ONCE):
            found = {i.id: i for i in session.scalars(select(Instance).where(Instance.id.in_(batch)))}
            pieces, places = _pieces(session, batch, scope), archive.places(session, batch)
            for one in batch:
                streams = pieces.get(one, {}).items()
                yield found[one], [_Stream(name, here, places[one][name]) for name, here in streams]
            batch, chunks = [], 0
        batch.append(instance_id)
        chunks += count


def _wanted(scope: Scope) -> Select[str, int]:
    """Instances that have logs where it is asked to look, with the number of their chunks; the newest first."""
    query = select(Instance.id, func.count()).outerjoin(Run, Run.id == Instance.run_id)
    query = query.join(Chunk, Chunk.instance_id == Instance.id).where(*_in_time(scope))
    if scope.run:
        query = query.where(Instance.run_id.startswith(scope.run.lower(), autoescape=True))
    if scope.machine:
        query = query.where(Instance.machine_id == scope.machine)
    if scope.image:
        query = query.where(Instance.image_ran.contains(scope.image, autoescape=True))
    if scope.outcome:
        query = query.where(Run.state == scope.outcome)
    if scope.gpu:
        name = Instance.facts["gpus"][0]["name"].as_string()
        query = query.where(name.ilike(f"%{_plain(scope.gpu)}%", escape="\\"))
    return query.group_by(Instance.id, Instance.created_ms).order_by(Instance.created_ms.desc())


def _plain(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _in_time(scope: Scope) -> list[ColumnElement[bool]]:
    bounds: list[ColumnElement[bool]] = [Chunk.stream == scope.stream] if scope.stream else []
    if scope.from_ms is not None:
        bounds.append(Chunk.t_last_ms >= scope.from_ms)
    if scope.to_ms is not None:
        bounds.append(Chunk.t_first_ms < scope.to_ms)
    return bounds


def _pieces(session: Session, ids: Sequence[str], scope: Scope) -> dict[str, dict[str, list[_Piece]]]:
    same = and_(
        ChunkGrams.instance_id == Chunk.instance_id, ChunkGrams.stream == Chunk.stream, ChunkGrams.seq == Chunk.seq
    )
    rows = session.execute(
        select(Chunk.instance_id, Chunk.stream, ChunkGrams.edge, ChunkGrams.bitmap, *archive.RECORD)
        .outerjoin(ChunkGrams, same)
        .outerjoin(Archive, Archive.instance_id == Chunk.instance_id)
        .where(Chunk.instance_id.in_(ids), *_in_time(scope))
        .where(or_(Archive.expired_ms.is_(None), ChunkGrams.seq.is_not(None)))  # of what expired, the pinned lines
        .order_by(Chunk.instance_id, Chunk.stream, Chunk.seq)
    )
    found: dict[str, dict[str, list[_Piece]]] = {}
    for instance_id, stream, edge, bitmap, *numbers in rows:
        # Where nothing is known of a chunk it is read, with the next one.
        piece = _Piece(ChunkRecord(*numbers), edge is None or bool(edge), unpacked(bitmap) if bitmap else FULL)
        found.setdefault(instance_id, {}).setdefault(stream, []).append(piece)
    return found


def _groups(pieces: list[_Piece], query: Query, progress: Progress) -> Iterator[list[ChunkRecord]]:
    """Consecutive chunks that could hold every text, where lines go on together; an empty list for those that could
    not."""
    groups: list[list[_Piece]] = []
    for piece in pieces:
        last = groups[-1] if groups else []
        follows = last and last[-1].open_end and piece.record.seq == last[-1].record.seq + 1 and len(last) < MAX_JOINED
        if follows:
            last.append(piece)
        else:
            groups.append([piece])
    together: list[ChunkRecord] = []
    most = TOGETHER_FIRST
    for group, possible in zip(groups, _possible(groups, query), strict=True):
        size = sum(piece.record.raw_bytes for piece in group)
        progress.looked_bytes += size
        progress.read_bytes += size if possible else 0
        apart = not possible or len(together) + len(group) > most
        if together and (apart or group[0].record.seq != together[-1].seq + 1):
            yield together
            together, most = [], min(2 * most, TOGETHER)
        if possible:
            together += [piece.record for piece in group]
        else:
            yield []
    if together:
        yield together


def _possible(groups: list[list[_Piece]], query: Query) -> np.ndarray:
    """Which groups could hold all texts of a branch of the query."""
    branches = [[needed(text) for text in branch] for branch in query.branches]
    could = np.zeros(len(groups), dtype=np.bool_)
    if not groups or not branches or not all(any(len(bits) for bits in branch) for branch in branches):
        return ~could
    table = np.stack([_united(group) for group in groups])
    for branch in branches:
        could |= np.logical_and.reduce([may_hold(table, bits) for bits in branch])
    return could


def _united(group: list[_Piece]) -> np.ndarray:
    rows = np.stack([np.frombuffer(piece.bitmap, dtype=np.uint8) for piece in group])
    united: np.ndarray = np.bitwise_or.reduce(rows, axis=0)
    return united


def _in_group(
    store: Store,
    query: Query,
    scope: Scope,
    instance: Instance,
    stream: _Stream,
    records: list[ChunkRecord],
    progress: Progress,
) -> Iterator[Hit]:
    chunks = list(read_chunks(store, instance.run_id or "none", instance.id, stream.name, records, stream.segments))
    progress.unread += sum(bool(chunk.damage) for chunk in chunks)
    # A chunk that is lost parts what stands before it from what comes after.
    for lost, whole in groupby(chunks, key=lambda chunk: bool(chunk.damage)):
        kept = list(whole)
        if lost:
            continue
        data = b"".join(chunk.raw for chunk in kept).replace(b"\r\n", b"\n")
        number, counted = kept[0].record.first_line, 0
        firsts = [chunk.record.first_line for chunk in kept]
        for begin, end in query.lines(data):
            number, counted = number + data.count(b"\n", counted, begin), begin
            line = data[begin:end]
            if scope.level and LEVELS.index(level_of(line)) < LEVELS.index(scope.level):
                continue
            yield Hit(
                instance.run_id, instance.id, instance.machine_id, stream.name, number, _around(line, query),
                _masked(data[data.rfind(b"\n", 0, max(begin - 1, 0)) + 1 : max(begin - 1, 0)])[:SHOWN],
                _masked(data[end + 1 : end + 1 + MASKED].split(b"\n", 1)[0])[:SHOWN],
                kept[bisect_right(firsts, number) - 1].record.t_first_ms,
            )  # fmt: skip


def _masked(line: bytes) -> bytes:
    """Masked once more, before it is cut: rules may have been added since the machine masked it."""
    return redact(line[:MASKED])


def _around(line: bytes, query: Query) -> bytes:
    """The part of a long line that holds the match, masked."""
    line = redact(line)
    if len(line) <= SHOWN:
        return line
    found = query.expression.search(line)
    begin = max(0, min((found.start() if found else 0) - SHOWN // 4, len(line) - SHOWN))
    return (b"..." if begin else b"") + line[begin : begin + SHOWN]
