"""What the archive holds of an instance, as SQL knows it: chunk records, where their bytes are, what is pinned."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from jobs.domain.archive_models import Archive, Discard, Keep, Pin, SegmentRow
from jobs.domain.db import writing
from jobs.domain.models import Artifact, Chunk
from jobs.domain.work import record
from logs.segments import Segment, Segments
from logs.wire import ChunkRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobs.context import Context

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
_SEGMENT = (SegmentRow.first_seq, SegmentRow.frame_bytes, SegmentRow.mark)


def records_of(session: Session, instance_id: str) -> dict[str, list[ChunkRecord]]:
    """Every stream of an instance with its chunk records in order."""
    streams: dict[str, list[ChunkRecord]] = {}
    rows = session.execute(
        select(Chunk.stream, *RECORD).where(Chunk.instance_id == instance_id).order_by(Chunk.stream, Chunk.seq)
    )
    for row in rows:
        streams.setdefault(row[0], []).append(ChunkRecord(*row[1:]))
    return streams


def segments_of(session: Session, instance_id: str, stream: str) -> list[Segment]:
    """The segments of one stream in order; what none of them holds has an object of its own, unless it expired."""
    rows = session.execute(
        select(*_SEGMENT)
        .where(SegmentRow.instance_id == instance_id, SegmentRow.stream == stream)
        .order_by(SegmentRow.first_seq)
    )
    return [_segment(*row) for row in rows]


def segments_between(session: Session, instance_id: str, stream: str, first: int, last: int) -> Segments:
    """Where the bytes of the chunks `first` to `last` of a stream are: what a page of a long log needs to know."""
    rows = session.execute(
        select(*_SEGMENT).where(
            SegmentRow.instance_id == instance_id,
            SegmentRow.stream == stream,
            SegmentRow.first_seq <= last,
            SegmentRow.last_seq >= first,
        )
    )
    return Segments([_segment(*row) for row in rows], expired(session, [instance_id]).get(instance_id, ""))


def _segment(first_seq: int, frame_bytes: list[int], mark: str) -> Segment:
    return Segment(first_seq, tuple(frame_bytes), mark)


class Places(dict[str, Segments]):
    """Where the bytes of an instance's streams are; of a stream that is not named, as of all others."""

    def __init__(self, gone: str):
        super().__init__()
        self.gone = gone

    def __missing__(self, stream: str) -> Segments:
        return Segments((), self.gone)


def expired(session: Session, instance_ids: Iterable[str]) -> dict[str, str]:
    """Those of the instances whose bytes were deleted when their time was over: "expired on" and the day."""
    query = select(Archive.instance_id, Archive.expired_ms).where(Archive.instance_id.in_(list(instance_ids)))
    return {
        instance_id: f"expired on {datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"
        for instance_id, at_ms in session.execute(query)
        if at_ms is not None
    }


def places(session: Session, instance_ids: Iterable[str]) -> dict[str, Places]:
    """Where the bytes of each of these instances are."""
    ids = list(instance_ids)
    gone = expired(session, ids)
    found = {one: Places(gone.get(one, "")) for one in ids}
    streams: dict[tuple[str, str], list[Segment]] = {}
    rows = session.execute(
        select(SegmentRow.instance_id, SegmentRow.stream, *_SEGMENT).where(SegmentRow.instance_id.in_(ids))
    )
    for instance_id, stream, *columns in rows:
        streams.setdefault((instance_id, stream), []).append(_segment(*columns))
    for (instance_id, stream), segments in streams.items():
        found[instance_id][stream] = Segments(segments, found[instance_id].gone)
    return found


def places_of(session: Session, instance_id: str) -> Places:
    """Where the bytes of one instance are."""
    return places(session, [instance_id])[instance_id]


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


def pin(session: Session, now_ms: int, instance_id: str, stream: str, lines: range, why: str, by: str) -> None:
    """Have lines kept for ever, because `why` cites them. The same again changes nothing. Lines that expired before
    are not brought back.
    """
    locked(session, instance_id)  # whoever deletes looks at the pins under the same lock
    same = (Pin.instance_id == instance_id, Pin.stream == stream, Pin.why == why)
    span = (Pin.first_line == lines.start, Pin.last_line == lines.stop - 1)
    if session.scalar(select(Pin.id).where(*same, *span)) is None:
        session.add(
            Pin(
                instance_id=instance_id,
                stream=stream,
                first_line=lines.start,
                last_line=lines.stop - 1,
                why=why,
                by=by,
                created_ms=now_ms,
            )
        )


def keep_run(context: Context, run_id: str, actor: str, reason: str) -> None:
    """Keep everything of a run for ever. What expired before is not brought back."""
    with writing(context.sessions) as session:
        if session.get(Keep, run_id) is None:
            now = context.now_ms()
            session.add(Keep(run_id=run_id, by=actor, reason=reason, created_ms=now))
            record(session, now, actor, "archive.kept", reason, run_id=run_id)


def let_go(context: Context, run_id: str, actor: str) -> None:
    """Let a run's logs expire like those of others again."""
    with writing(context.sessions) as session:
        kept = session.get(Keep, run_id)
        if kept is not None:
            session.delete(kept)
            record(session, context.now_ms(), actor, "archive.let_go", run_id=run_id)
