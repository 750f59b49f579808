"""What the archive holds of an instance, as SQL knows it: chunk records, where their bytes are, what is pinned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from jobs.domain.archive_models import Archive, Discard, SegmentRow
from jobs.domain.models import Artifact, Chunk
from logs.segments import Segment
from logs.wire import ChunkRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DISCARD_AFTER_MS = 3600_000
"""How long an object is kept that was replaced: whoever began to read it has had time to finish."""
RECORD = (
    Chunk.seq,
    Chunk.first_line,
    Chunk.lines,
    Chunk.t_first_ms,
    Chunk.t_last_ms,
    Chunk.raw_bytes,
    Chunk.raw_sha256,
    Chunk.prev_sha256,
)
"""The columns of a `ChunkRecord`, in its order: a row of them is much cheaper than a `Chunk`."""


def records_of(session: Session, instance_id: str) -> dict[str, list[ChunkRecord]]:
    """Every stream of an instance with its chunk records in order."""
    streams: dict[str, list[ChunkRecord]] = {}
    rows = session.execute(
        select(Chunk.stream, *RECORD).where(Chunk.instance_id == instance_id).order_by(Chunk.stream, Chunk.seq)
    )
    for row in rows:
        streams.setdefault(row[0], []).append(ChunkRecord(*row[1:]))
    return streams


def segments_of(session: Session, instance_id: str) -> dict[str, list[Segment]]:
    """Every stream of an instance with its segments in order; what no segment holds has an object of its own."""
    return segments_of_all(session, [instance_id]).get(instance_id, {})


def segments_of_all(session: Session, instance_ids: Iterable[str]) -> dict[str, dict[str, list[Segment]]]:
    """The same of many instances."""
    found: dict[str, dict[str, list[Segment]]] = {}
    rows = session.execute(
        select(SegmentRow.instance_id, SegmentRow.stream, SegmentRow.first_seq, SegmentRow.frame_bytes, SegmentRow.mark)
        .where(SegmentRow.instance_id.in_(list(instance_ids)))
        .order_by(SegmentRow.instance_id, SegmentRow.stream, SegmentRow.first_seq)
    )
    for instance_id, stream, first_seq, frame_bytes, mark in rows:
        streams = found.setdefault(instance_id, {})
        streams.setdefault(stream, []).append(Segment(first_seq, tuple(frame_bytes), mark))
    return found


def row_of(stream: str, instance_id: str, segment: Segment, now_ms: int) -> SegmentRow:
    """The row that says where the bytes of a segment's chunks are."""
    return SegmentRow(
        instance_id=instance_id,
        stream=stream,
        first_seq=segment.first_seq,
        last_seq=segment.last_seq,
        frame_bytes=list(segment.frame_bytes),
        mark=segment.mark,
        created_ms=now_ms,
    )


def locked(session: Session, instance_id: str) -> Archive:
    """The account of an instance's bytes, held until the transaction ends; opened where there is none yet."""
    account = session.get(Archive, instance_id, with_for_update=True, populate_existing=True)
    if account is None:
        try:
            with session.begin_nested():
                session.add(opened(session, instance_id))
        except IntegrityError:
            pass  # another stream's first byte came at the same moment
        account = session.get_one(Archive, instance_id, with_for_update=True, populate_existing=True)
    return account


def opened(session: Session, instance_id: str) -> Archive:
    """A new account, not yet in the database, with what is there already: an instance may be older than its account."""
    raw = session.scalar(select(func.sum(Chunk.raw_bytes)).where(Chunk.instance_id == instance_id))
    files = session.scalar(select(func.sum(Artifact.size_bytes)).where(Artifact.instance_id == instance_id))
    return Archive(instance_id=instance_id, raw_bytes=raw or 0, artifact_bytes=files or 0)


def discard(session: Session, now_ms: int, keys: Sequence[str]) -> None:
    """Have objects deleted that nothing refers to any more, once nobody can be reading them."""
    for at in range(0, len(keys), 500):
        some = keys[at : at + 500]
        known = set(session.scalars(select(Discard.object_key).where(Discard.object_key.in_(some))))
        rows = [{"object_key": key, "due_ms": now_ms + DISCARD_AFTER_MS} for key in some if key not in known]
        if rows:
            session.execute(insert(Discard), rows)
