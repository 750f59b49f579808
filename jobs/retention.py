"""`expire`: the bytes of old runs are deleted, by classes and days that the settings name; by default nothing is.

What stays: everything in SQL (money, verdicts, the records with their hashes), the manifest, and pinned lines: the
chunks that hold those move into segments of their own, and a file of the provider's that is cited stays whole. A run
that an operator keeps never expires.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sqlalchemy import and_, delete, or_, select
from sqlalchemy.orm import Session

from jobs.context import Context, current
from jobs.domain import archive
from jobs.domain.archive_models import Archive, Keep, Pin, SegmentRow
from jobs.domain.db import writing
from jobs.domain.models import Artifact, Chunk, Instance, Run
from jobs.domain.search_models import ChunkGrams
from jobs.domain.states import ENDED
from jobs.domain.work import record
from logs.chunks import ChunkRefused
from logs.errors import NoSuchObject, OutOfRange, StoreError, TooLarge
from logs.frames import read_frame
from logs.segments import Segment, Segments, planned
from logs.wire import ChunkRecord, instance_prefix, manifest_key

log = logging.getLogger(__name__)

DAY_MS = 86_400_000
AT_ONCE = 20
PINS_MOST = 10_000  # chunks of one instance that pins may keep


def expire() -> None:
    """The RQ job, every ten minutes by cron. A store that is away is tried again then."""
    context = current()
    try:
        for instance_id in _due(context):
            expire_instance(context, instance_id)
    except StoreError as error:
        log.warning("what is due expires later: %s", error)


def _due(context: Context) -> list[str]:
    settings, now = context.settings, context.now_ms()
    classes = (
        (settings.keep_passed_days, ("passed",)),
        (settings.keep_failed_days, ("failed", "broken", "slow")),
        (settings.keep_cancelled_days, ("cancelled",)),
    )
    old = [and_(Run.state.in_(states), Run.ended_ms < now - days * DAY_MS) for days, states in classes if days]
    if not old:
        return []
    query = (
        select(Instance.id)
        .join(Run, Run.id == Instance.run_id)
        .outerjoin(Archive, Archive.instance_id == Instance.id)
        .outerjoin(Keep, Keep.run_id == Run.id)
        .where(
            or_(*old),
            Instance.state.in_(ENDED),
            Instance.evidence != "",
            Keep.run_id.is_(None),
            Archive.expired_ms.is_(None),
        )
        .order_by(Run.ended_ms)
    )
    with context.sessions() as session:
        return list(session.scalars(query.limit(AT_ONCE)))


def expire_instance(context: Context, instance_id: str) -> bool:
    """Delete the bytes of one instance but for pinned lines. False: something changed meanwhile, and nothing was done.

    Raises `StoreError`.
    """
    with context.sessions() as session:
        instance = session.get_one(Instance, instance_id)
        pins = _pins(session, instance_id)
        pinned = {stream: records for stream in {pin.stream for pin in pins}
                  if (records := _records(session, instance_id, stream, pins))}  # fmt: skip
        places = archive.places_of(session, instance_id)
        files = (Artifact.instance_id == instance_id, Artifact.name.in_({f"{pin.stream}.log" for pin in pins}))
        cited = list(session.scalars(select(Artifact.object_key).where(*files)))
    run = instance.run_id or "none"
    moved = {stream: _moved(context, (run, instance_id, stream), places[stream], records)
             for stream, records in pinned.items()}  # fmt: skip
    kept = {segment.key(run, instance_id, stream) for stream, held in moved.items() for segment in held}
    kept |= {manifest_key(run, instance_id), *cited}
    keys = [info.key for info in context.store.list(instance_prefix(run, instance_id)) if info.key not in kept]
    with writing(context.sessions) as session:
        now, account = context.now_ms(), archive.locked(session, instance_id)
        kept_run = session.get(Keep, run) is not None
        if account.expired_ms is not None or kept_run or len(_pins(session, instance_id)) != len(pins):
            archive.discard(session, now, [key for key in kept if "/_segments/" in key])
            return False
        account.expired_ms = account.compacted_ms = now
        session.execute(delete(SegmentRow).where(SegmentRow.instance_id == instance_id))
        session.add_all(
            archive.row_of(stream, instance_id, segment, now) for stream, held in moved.items() for segment in held
        )
        _forget_text(session, instance_id, moved)
        archive.discard(session, now, keys)
        told = f"its logs and artifacts were deleted; pinned lines of {len(pins)} citations stay"
        record(session, now, "retention", "archive.expired", told, run_id=instance.run_id, instance_id=instance_id)
    return True


def _pins(session: Session, instance_id: str) -> list[Pin]:
    return list(session.scalars(select(Pin).where(Pin.instance_id == instance_id)))


def _records(session: Session, instance_id: str, stream: str, pins: Sequence[Pin]) -> list[ChunkRecord]:
    """The chunks that hold a pinned line, or a part of one."""
    spans = [
        and_(Chunk.first_line <= pin.last_line, Chunk.first_line + Chunk.lines >= pin.first_line)
        for pin in pins
        if pin.stream == stream
    ]
    mine = (Chunk.instance_id == instance_id, Chunk.stream == stream)
    found: dict[int, ChunkRecord] = {}
    for at in range(0, len(spans), 100):
        rows = session.execute(select(*archive.RECORD).where(*mine, or_(*spans[at : at + 100])).limit(PINS_MOST))
        found.update({row[0]: ChunkRecord(*row) for row in rows})
    return [found[seq] for seq in sorted(found)][:PINS_MOST]


def _moved(context: Context, where: tuple[str, str, str], held: Segments, records: list[ChunkRecord]) -> list[Segment]:
    """Segments of these chunks alone, written to the store."""
    frames: dict[int, bytes] = {}
    for one in records:
        try:
            frames[one.seq] = read_frame(context.store, *where, one, held)
        except (NoSuchObject, OutOfRange, TooLarge, ChunkRefused) as error:
            log.warning("%s: pinned chunk %d can't be kept: %s", "/".join(where), one.seq, error)
    moved = list(planned(((seq, len(frame)) for seq, frame in frames.items()), context.new_id))
    for segment in moved:
        seqs = range(segment.first_seq, segment.last_seq + 1)
        context.store.put_once(segment.key(*where), b"".join(frames[seq] for seq in seqs))
    return moved


def _forget_text(session: Session, instance_id: str, moved: dict[str, list[Segment]]) -> None:
    """What searches know of the chunks that are gone would let them be guessed at, and is of no use any more."""
    mine = ChunkGrams.instance_id == instance_id
    held = [
        and_(ChunkGrams.stream == stream, ChunkGrams.seq.between(segment.first_seq, segment.last_seq))
        for stream, segments in moved.items()
        for segment in segments
    ]
    session.execute(delete(ChunkGrams).where(mine, ~or_(*held)) if held else delete(ChunkGrams).where(mine))
