"""`compact`: single chunks become segments: of what is being shipped as they pile up, of what is sealed all of them.

A stream that says little ships a small chunk every 2 s. Left alone they would make reading, sealing and deleting slow,
and each is an object that is paid for. A segment is written, read back, and written down; the single objects go an
hour later, when nobody who began to read them can still be at it. Two workers at it at once are harmless: a segment
that overlaps another is thrown away.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from jobs.context import Context, current
from jobs.domain import archive
from jobs.domain.archive_models import Archive, SegmentRow
from jobs.domain.db import writing
from jobs.domain.models import Chunk, Instance
from jobs.domain.states import BILLABLE
from logs.chunks import ChunkRefused
from logs.errors import NoSuchObject, StoreError, TooLarge
from logs.frames import read_frame
from logs.segments import Segment, planned
from logs.wire import SEGMENT_BYTES, ChunkRecord, chunk_key

log = logging.getLogger(__name__)

LOOSE = 64  # single chunks of a live stream from which on they are put together
SEALED_AT_ONCE = 10  # instances a minute
CHUNKS_AT_ONCE = 8192  # of one stream a minute: half a minute's work
READERS = 8

Where = tuple[str, str, str]


def compact() -> None:
    """The RQ job, every minute by cron. A store that is away is tried again the next minute."""
    context = current()
    try:
        for instance_id in _live(context):
            compact_instance(context, instance_id, at_least=LOOSE)
        for instance_id in _sealed(context):
            if compact_instance(context, instance_id, at_least=2):
                with writing(context.sessions) as session:
                    archive.locked(session, instance_id).compacted_ms = context.now_ms()
    except StoreError as error:
        log.warning("compaction goes on later: %s", error)


def _live(context: Context) -> list[str]:
    with context.sessions() as session:
        return list(session.scalars(select(Instance.id).where(Instance.state.in_(BILLABLE))))


def _sealed(context: Context) -> list[str]:
    """Instances to which nothing is added any more, the newest first."""
    with context.sessions() as session:
        query = (
            select(Instance.id)
            .outerjoin(Archive, Archive.instance_id == Instance.id)
            .where(Instance.evidence != "", or_(Archive.instance_id.is_(None), Archive.compacted_ms.is_(None)))
            .order_by(Instance.created_ms.desc())
        )
        return list(session.scalars(query.limit(SEALED_AT_ONCE)))


def compact_instance(context: Context, instance_id: str, at_least: int) -> bool:
    """Put the single chunks of each stream together that has `at_least` so many; True when none are left to be.

    Raises `StoreError`.
    """
    with context.sessions() as session:
        instance = session.get_one(Instance, instance_id)
        loose = {stream: records for stream in _streams(session, instance_id)
                 if len(records := _loose(session, instance_id, stream)) >= at_least}  # fmt: skip
    done = True
    for stream, records in loose.items():
        some = records[:CHUNKS_AT_ONCE]
        done = done and len(some) == len(records)
        _compact_stream(context, (instance.run_id or "none", instance_id, stream), some)
    return done


def _streams(session: Session, instance_id: str) -> list[str]:
    """By the first chunks: a look at 16 rows, not at all of them."""
    return list(session.scalars(select(Chunk.stream).where(Chunk.instance_id == instance_id, Chunk.seq == 0)))


def _loose(session: Session, instance_id: str, stream: str) -> list[ChunkRecord]:
    """The chunks in stretches of two or more that no segment holds."""
    mine = (Chunk.instance_id == instance_id, Chunk.stream == stream)
    last = session.scalar(select(func.max(Chunk.seq)).where(*mine))
    gaps, begin = [], 0
    for segment in archive.segments_of(session, instance_id, stream):
        gaps.append((begin, segment.first_seq - 1))
        begin = segment.last_seq + 1
    gaps.append((begin, -1 if last is None else last))
    gaps = [(first, end) for first, end in gaps if end > first]
    if not gaps:
        return []
    rows = session.execute(
        select(*archive.RECORD).where(*mine, Chunk.seq.between(gaps[0][0], gaps[-1][1])).order_by(Chunk.seq)
    )
    wanted = {seq for first, end in gaps for seq in range(first, end + 1)}
    return [ChunkRecord(*row) for row in rows if row[0] in wanted]


def _compact_stream(context: Context, where: Where, records: list[ChunkRecord]) -> None:
    with ThreadPoolExecutor(READERS, thread_name_prefix="compact") as pool:
        for at in range(0, len(records), 512):  # at most 32 MiB in memory
            read = pool.map(lambda record: _frame(context, where, record), records[at : at + 512])
            frames = {record.seq: frame for record, frame in zip(records[at : at + 512], read, strict=True) if frame}
            for segment in planned(((seq, len(frame)) for seq, frame in frames.items()), context.new_id):
                seqs = range(segment.first_seq, segment.last_seq + 1)
                if len(seqs) > 1:
                    _keep(context, where, segment, b"".join(frames[seq] for seq in seqs))


def _frame(context: Context, where: Where, record: ChunkRecord) -> bytes:
    """Empty where the store has lost or altered it: that one stays as it is, for whoever reads it to be told."""
    try:
        return read_frame(context.store, *where, record)
    except (NoSuchObject, ChunkRefused, TooLarge) as error:
        log.warning("%s: chunk %d is left as it is: %s", "/".join(where), record.seq, error)
        return b""


def _keep(context: Context, where: Where, segment: Segment, data: bytes) -> None:
    _, instance_id, stream = where
    key, now = segment.key(*where), context.now_ms()
    context.store.put_once(key, data)
    whole = context.store.get(key, SEGMENT_BYTES) == data
    if not whole:
        log.warning("%s: what was written does not come back; its chunks stay as they are", key)
    with writing(context.sessions) as session:
        archive.locked(session, instance_id)
        if whole and not _overlaps(session, instance_id, stream, segment):
            session.add(archive.row_of(stream, instance_id, segment, now))
            archive.discard(session, now, _singles(where, segment))
        else:
            archive.discard(session, now, [key])


def _overlaps(session: Session, instance_id: str, stream: str, segment: Segment) -> bool:
    mine = (SegmentRow.instance_id == instance_id, SegmentRow.stream == stream)
    over = (SegmentRow.first_seq <= segment.last_seq, SegmentRow.last_seq >= segment.first_seq)
    return bool(session.scalar(select(func.count()).select_from(SegmentRow).where(*mine, *over)))


def _singles(where: Where, segment: Segment) -> list[str]:
    return [chunk_key(*where, seq) for seq in range(segment.first_seq, segment.last_seq + 1)]
