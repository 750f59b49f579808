"""Chunks and artifacts on their way into the archive: checked, stored once, then written down, then acknowledged."""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from gpu.protocol import ChunkAck
from jobs.domain import archive
from jobs.domain.agents import AgentRefused, authenticated
from jobs.domain.archive_models import Archive
from jobs.domain.db import writing
from jobs.domain.models import Artifact, Chunk, Instance
from jobs.domain.search_models import ChunkGrams
from logs import tail
from logs.chunks import ChunkRefused, check_successor, open_frame
from logs.errors import ObjectConflict, StoreError
from logs.grams import packed
from logs.levels import counts
from logs.segments import Segment
from logs.wire import (
    MAX_ARTIFACT_BYTES,
    MAX_ARTIFACTS_BYTES,
    MAX_ARTIFACTS_PER_INSTANCE,
    MAX_INSTANCE_BYTES,
    MAX_STREAMS_PER_INSTANCE,
    TAIL_FRAME_BYTES,
    ChunkRecord,
    WireError,
    artifact_key,
    check_artifact_name,
    check_stream_name,
    chunk_key,
)

if TYPE_CHECKING:
    from jobs.context import Context

SEGMENT_MIN = 4  # so many chunks that come together become one object
TRIES = 3
HANDS = 3
"""Threads a call: zstd, SHA-256, RE2 and numpy work without the interpreter's lock, and one waits for S3 meanwhile."""


@dataclass(frozen=True)
class Taken:
    """A chunk that came, checked by itself."""

    record: ChunkRecord
    frame: bytes
    raw: bytes


def add_chunks(
    context: Context, instance: Instance, stream: str, chunks: Sequence[tuple[ChunkRecord, bytes]]
) -> ChunkAck:
    """Consecutive chunks: bytes into S3 first, then the rows, then the acknowledgement, so that what we acknowledge is
    never lost. Those that are in the archive already are passed over.

    Raises `AgentRefused` (then none of them is in) and `logs.errors.StoreError`.
    """
    with ThreadPoolExecutor(HANDS, thread_name_prefix="chunks") as hands:
        return _add_chunks(hands, context, instance, stream, _checked(hands, stream, chunks))


def _add_chunks(hands: Executor, context: Context, instance: Instance, stream: str, taken: list[Taken]) -> ChunkAck:
    for _ in range(TRIES):
        with context.sessions() as session:
            account = session.get(Archive, instance.id) or archive.opened(session, instance.id)
            _refuse_sealed(session, instance, account)
            next_seq, new = _new(session, instance.id, stream, taken)
            if not new:
                return ChunkAck(True, next_seq)
            _refuse_too_much(session, instance.id, stream, new, account)
            edge = _edge(session, instance.id, stream, next_seq - 1)
        storing = hands.submit(_store, context, instance, stream, new)
        known = _known(hands, edge, new)
        segment = storing.result()
        if _write_down(context, instance, stream, new, segment, known):
            return ChunkAck(True, new[-1].record.seq + 1)
        if segment is not None:
            _discard(context, instance, stream, segment)
    raise AgentRefused(503, "overtaken", "these chunks were being taken in by other calls; come again")


def _checked(hands: Executor, stream: str, chunks: Sequence[tuple[ChunkRecord, bytes]]) -> list[Taken]:
    try:
        check_stream_name(stream)
        taken = list(hands.map(_opened, chunks))
    except (WireError, ChunkRefused) as error:
        raise AgentRefused(400, "bad_chunk", str(error)) from error
    for before, after in pairwise(taken):
        _check_link(before.record, after.record)
    return taken


def _opened(chunk: tuple[ChunkRecord, bytes]) -> Taken:
    record, frame = chunk
    return Taken(record, frame, open_frame(frame, record))


def _check_link(before: ChunkRecord | None, record: ChunkRecord) -> None:
    try:
        check_successor(before, record)
    except ChunkRefused as error:
        raise AgentRefused(409, "chain_broken", str(error)) from error


def _refuse_sealed(session: Session, instance: Instance, account: Archive) -> None:
    """As it is now: it may have been sealed since the caller was authenticated, and what a manifest that is drawn up
    does not name must not be acknowledged."""
    kept = select(Instance.evidence_sha256, Instance.evidence_gap).where(Instance.id == instance.id)
    if account.manifest_ms is not None or any(value is not None for value in session.execute(kept).one()):
        raise AgentRefused(409, "sealed", "the evidence of this instance is sealed; nothing more is taken")


def _last(session: Session, instance_id: str, stream: str) -> ChunkRecord | None:
    mine = (Chunk.instance_id == instance_id, Chunk.stream == stream)
    row = session.execute(select(*archive.RECORD).where(*mine).order_by(Chunk.seq.desc()).limit(1)).first()
    return ChunkRecord(*row) if row else None


def _new(session: Session, instance_id: str, stream: str, taken: list[Taken]) -> tuple[int, list[Taken]]:
    """The number that comes next, and those that the archive does not have, which begin with it. Raises
    `AgentRefused`."""
    last = _last(session, instance_id, stream)
    next_seq = last.seq + 1 if last else 0
    first = taken[0].record.seq
    if first < next_seq:
        span = Chunk.seq.between(first, taken[-1].record.seq)
        mine = (Chunk.instance_id == instance_id, Chunk.stream == stream, span)
        rows = session.execute(select(Chunk.seq, Chunk.raw_sha256).where(*mine))
        held = {row[0]: row[1] for row in rows}
        for chunk in taken:
            seq = chunk.record.seq
            if seq < next_seq and held.get(seq) != chunk.record.raw_sha256:
                raise _conflict(seq, stream)
    new = [chunk for chunk in taken if chunk.record.seq >= next_seq]
    if new and new[0].record.seq > next_seq:
        raise AgentRefused(409, "out_of_order", f"chunk {next_seq} of {stream} comes next, not {new[0].record.seq}")
    if new:
        _check_link(last, new[0].record)
    return next_seq, new


def _conflict(seq: int, stream: str) -> AgentRefused:
    return AgentRefused(409, "conflict", f"chunk {seq} of {stream} is in the archive with other bytes")


def _refuse_too_much(session: Session, instance_id: str, stream: str, new: list[Taken], account: Archive) -> None:
    if new[0].record.seq == 0:
        others = session.scalar(
            select(func.count()).select_from(Chunk).where(Chunk.instance_id == instance_id, Chunk.seq == 0)
        )
        if (others or 0) >= MAX_STREAMS_PER_INSTANCE:
            raise AgentRefused(413, "quota", f"an instance has at most {MAX_STREAMS_PER_INSTANCE} streams")
    if account.raw_bytes + sum(chunk.record.raw_bytes for chunk in new) > MAX_INSTANCE_BYTES:
        raise AgentRefused(413, "quota", f"the logs of an instance are at most {MAX_INSTANCE_BYTES:,} bytes")


def _store(context: Context, instance: Instance, stream: str, new: list[Taken]) -> Segment | None:
    """The bytes, once: many chunks as one segment, few as objects of their own."""
    run = instance.run_id or "none"
    if len(new) >= SEGMENT_MIN:
        return _store_segment(context, instance, stream, new)
    for chunk in new:
        try:
            context.store.put_once(chunk_key(run, instance.id, stream, chunk.record.seq), chunk.frame)
        except ObjectConflict as error:
            # The same chunk compressed by another zstd would be other bytes: only the raw content decides.
            raise _conflict(chunk.record.seq, stream) from error
    return None


def _store_segment(context: Context, instance: Instance, stream: str, new: list[Taken]) -> Segment:
    segment = Segment(new[0].record.seq, tuple(len(chunk.frame) for chunk in new), context.new_id())
    try:
        context.store.put_once(
            segment.key(instance.run_id or "none", instance.id, stream), b"".join(chunk.frame for chunk in new)
        )
    except StoreError:
        _discard(context, instance, stream, segment)  # it may be there all the same
        raise
    return segment


def _write_down(
    context: Context,
    instance: Instance,
    stream: str,
    new: list[Taken],
    segment: Segment | None,
    known: list[dict[str, Any]],
) -> bool:
    """The rows, in one transaction. False: another call wrote some of these chunks down meanwhile."""
    now, key = context.now_ms(), {"instance_id": instance.id, "stream": stream}
    chunks = [{**key, **chunk.record.to_dict(), "stored_bytes": len(chunk.frame), "received_ms": now} for chunk in new]
    with writing(context.sessions) as session:
        account = archive.locked(session, instance.id)
        _refuse_sealed(session, instance, account)
        if _new(session, instance.id, stream, new)[1] != new:
            return False
        _refuse_too_much(session, instance.id, stream, new, account)
        account.raw_bytes += sum(chunk.record.raw_bytes for chunk in new)
        session.execute(insert(Chunk), chunks)
        session.execute(insert(ChunkGrams), [{**key, **row} for row in known])
        if segment is not None:
            session.add(archive.row_of(stream, instance.id, segment, now))
    return True


def _discard(context: Context, instance: Instance, stream: str, segment: Segment) -> None:
    """Nothing will refer to this object: each writing has a key of its own."""
    with writing(context.sessions) as session:
        archive.discard(session, context.now_ms(), [segment.key(instance.run_id or "none", instance.id, stream)])


def _edge(session: Session, instance_id: str, stream: str, seq: int) -> bytes:
    before = session.get(ChunkGrams, (instance_id, stream, seq)) if seq >= 0 else None
    return before.edge if before else b""


def _known(hands: Executor, edge: bytes, new: list[Taken]) -> list[dict[str, Any]]:
    """What a search rules each chunk out by, and how many of its lines are warnings and errors. `edge`: what the chunk
    before them left of a line."""
    edges = [edge]
    for chunk in new:
        edges.append(b"" if chunk.raw.endswith(b"\n") else (edges[-1] + chunk.raw)[-2:])
    return list(hands.map(_known_of, new, edges, edges[1:]))


def _known_of(chunk: Taken, before: bytes, edge: bytes) -> dict[str, Any]:
    warnings, errors = counts(chunk.raw)
    bitmap = packed(before + chunk.raw)
    return {"seq": chunk.record.seq, "warnings": warnings, "errors": errors, "edge": edge, "bitmap": bitmap}


def store_chunks(context: Context, token: str, stream: str, chunks: Sequence[tuple[ChunkRecord, bytes]]) -> ChunkAck:
    """Chunks from the machine itself. Errors as `add_chunks`."""
    with context.sessions() as session:
        instance = authenticated(session, token)
    return add_chunks(context, instance, stream, chunks)


def store_chunk(context: Context, token: str, stream: str, seq: int, chunk: ChunkRecord, frame: bytes) -> ChunkAck:
    """One chunk from the machine itself. Errors as `add_chunks`."""
    if chunk.seq != seq:
        raise AgentRefused(400, "bad_chunk", f"the address says chunk {seq}, the record {chunk.seq}")
    return store_chunks(context, token, stream, [(chunk, frame)])


def store_tail(context: Context, token: str, stream: str, first_line: int, data: bytes) -> None:
    """Fresh lines for the live view, best effort: Redis only, never the archive.

    Raises `AgentRefused`, `logs.tail.TailUnavailable`.
    """
    with context.sessions() as session:
        instance = authenticated(session, token)
    try:
        check_stream_name(stream)
    except WireError as error:
        raise AgentRefused(400, "bad_stream", str(error)) from error
    if len(data) > TAIL_FRAME_BYTES:
        raise AgentRefused(413, "too_large", f"a tail frame is at most {TAIL_FRAME_BYTES} bytes")
    tail.publish(context.tail_redis, instance.id, stream, first_line, data)


def add_artifact(context: Context, instance: Instance, name: str, data: IO[bytes], length: int, sha256: str) -> None:
    """Store one artifact once. Raises `AgentRefused` and `logs.errors.StoreError`."""
    try:
        check_artifact_name(name)
    except WireError as error:
        raise AgentRefused(400, "bad_name", str(error)) from error
    if length > MAX_ARTIFACT_BYTES:
        raise AgentRefused(413, "too_large", f"an artifact is at most {MAX_ARTIFACT_BYTES:,} bytes")
    with writing(context.sessions) as session:
        account = archive.locked(session, instance.id)
        if session.get(Artifact, (instance.id, name)) is not None:
            return
        _refuse_sealed(session, instance, account)
        _refuse_artifact(session, instance.id, account, length)
    key = artifact_key(instance.run_id or "none", instance.id, name)
    try:
        context.store.put_once(key, data)  # type: ignore[arg-type]
    except ObjectConflict as error:
        raise AgentRefused(409, "conflict", f"another artifact {name} is in the archive") from error
    with writing(context.sessions) as session:
        account = archive.locked(session, instance.id)
        if session.get(Artifact, (instance.id, name)) is not None:
            return
        _refuse_sealed(session, instance, account)
        _refuse_artifact(session, instance.id, account, length)
        account.artifact_bytes += length
        session.add(
            Artifact(
                instance_id=instance.id,
                name=name,
                size_bytes=length,
                sha256=sha256,
                object_key=key,
                created_ms=context.now_ms(),
            )
        )


def _refuse_artifact(session: Session, instance_id: str, account: Archive, length: int) -> None:
    mine = select(func.count()).select_from(Artifact).where(Artifact.instance_id == instance_id)
    if (session.scalar(mine) or 0) >= MAX_ARTIFACTS_PER_INSTANCE:
        raise AgentRefused(413, "quota", f"an instance has at most {MAX_ARTIFACTS_PER_INSTANCE} artifacts")
    if account.artifact_bytes + length > MAX_ARTIFACTS_BYTES:
        raise AgentRefused(413, "quota", f"the artifacts of an instance are at most {MAX_ARTIFACTS_BYTES:,} bytes")


def store_artifact(context: Context, token: str, name: str, data: IO[bytes], length: int, sha256: str) -> None:
    """An artifact from the machine: `length` bytes that hash to `sha256`, read into a spooled file first."""
    with context.sessions() as session:
        instance = authenticated(session, token)
    if length > MAX_ARTIFACT_BYTES:
        raise AgentRefused(413, "too_large", f"an artifact is at most {MAX_ARTIFACT_BYTES:,} bytes")
    digest = hashlib.sha256()
    with tempfile.SpooledTemporaryFile(max_size=1 << 20) as spool:
        while piece := data.read(min(1 << 16, max(0, length - spool.tell()))):
            digest.update(piece)
            spool.write(piece)
        if spool.tell() != length or digest.hexdigest() != sha256:
            raise AgentRefused(400, "bad_artifact", f"{name}: the bytes are not those announced; send it again")
        spool.seek(0, io.SEEK_SET)
        add_artifact(context, instance, name, spool, length, sha256)
