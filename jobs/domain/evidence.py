"""Chunks and artifacts on their way into the archive: checked, stored once, then written down, then acknowledged."""

from __future__ import annotations

import hashlib
import io
import tempfile
from typing import IO, TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gpu.protocol import ChunkAck
from jobs.domain.agents import AgentRefused, authenticated
from jobs.domain.db import writing
from jobs.domain.models import Artifact, Chunk, Instance
from jobs.domain.search_models import ChunkGrams
from logs import tail
from logs.chunks import ChunkRefused, check_successor, open_frame
from logs.errors import ObjectConflict
from logs.grams import packed
from logs.levels import counts
from logs.wire import (
    MAX_ARTIFACT_BYTES,
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


def record_of(row: Chunk) -> ChunkRecord:
    return ChunkRecord(
        row.seq,
        row.first_line,
        row.lines,
        row.t_first_ms,
        row.t_last_ms,
        row.raw_bytes,
        row.raw_sha256,
        row.prev_sha256,
    )


def records_of(session: Session, instance_id: str) -> dict[str, list[ChunkRecord]]:
    """Every stream of an instance with its chunk records in order."""
    streams: dict[str, list[ChunkRecord]] = {}
    for row in session.scalars(select(Chunk).where(Chunk.instance_id == instance_id).order_by(Chunk.stream, Chunk.seq)):
        streams.setdefault(row.stream, []).append(record_of(row))
    return streams


def _last(session: Session, instance_id: str, stream: str) -> Chunk | None:
    return session.scalar(
        select(Chunk)
        .where(Chunk.instance_id == instance_id, Chunk.stream == stream)
        .order_by(Chunk.seq.desc())
        .limit(1)
    )


def _refuse_sealed(session: Session, instance: Instance) -> None:
    """As it is now: it may have been sealed since the caller was authenticated."""
    kept = select(Instance.evidence_sha256, Instance.evidence_gap).where(Instance.id == instance.id)
    if any(value is not None for value in session.execute(kept).one()):
        raise AgentRefused(409, "sealed", "the evidence of this instance is sealed; nothing more is taken")


def _check_place(session: Session, instance: Instance, stream: str, chunk: ChunkRecord) -> ChunkAck | None:
    """An acknowledgement where the chunk is in the archive already, None where it is the next one."""
    _refuse_sealed(session, instance)
    last = _last(session, instance.id, stream)
    next_seq = last.seq + 1 if last else 0
    if chunk.seq < next_seq:
        held = session.get(Chunk, (instance.id, stream, chunk.seq))
        if held is not None and held.raw_sha256 == chunk.raw_sha256:
            return ChunkAck(True, next_seq)
        raise AgentRefused(409, "conflict", f"chunk {chunk.seq} of {stream} is in the archive with other bytes")
    if chunk.seq > next_seq:
        raise AgentRefused(409, "out_of_order", f"chunk {next_seq} of {stream} comes next, not {chunk.seq}")
    try:
        check_successor(record_of(last) if last else None, chunk)
    except ChunkRefused as error:
        raise AgentRefused(409, "chain_broken", str(error)) from error
    names = set(session.scalars(select(Chunk.stream).where(Chunk.instance_id == instance.id).distinct()))
    if stream not in names and len(names) >= MAX_STREAMS_PER_INSTANCE:
        raise AgentRefused(413, "quota", f"an instance has at most {MAX_STREAMS_PER_INSTANCE} streams")
    used = session.scalar(select(func.sum(Chunk.raw_bytes)).where(Chunk.instance_id == instance.id)) or 0
    if used + chunk.raw_bytes > MAX_INSTANCE_BYTES:
        raise AgentRefused(413, "quota", f"the logs of an instance are at most {MAX_INSTANCE_BYTES:,} bytes")
    return None


def add_chunk(context: Context, instance: Instance, stream: str, chunk: ChunkRecord, frame: bytes) -> ChunkAck:
    """Bytes into S3 first, then the row, then the acknowledgement: what we acknowledge is never lost.

    Raises `AgentRefused` and `logs.errors.StoreError`.
    """
    try:
        check_stream_name(stream)
        raw = open_frame(frame, chunk)
    except (WireError, ChunkRefused) as error:
        raise AgentRefused(400, "bad_chunk", str(error)) from error
    with context.sessions() as session:
        if held := _check_place(session, instance, stream, chunk):
            return held
    try:
        context.store.put_once(chunk_key(instance.run_id or "none", instance.id, stream, chunk.seq), frame)
    except ObjectConflict as error:
        # The same chunk compressed by another zstd would be other bytes: only the raw content decides.
        raise AgentRefused(
            409, "conflict", f"chunk {chunk.seq} of {stream} is in the archive with other bytes"
        ) from error
    row = Chunk(
        instance_id=instance.id, stream=stream, stored_bytes=len(frame), received_ms=context.now_ms(), **chunk.to_dict()
    )
    try:
        with writing(context.sessions) as session:
            if held := _check_place(session, instance, stream, chunk):
                return held
            session.add(row)
            session.add(_grams(session, instance.id, stream, chunk.seq, raw))
    except IntegrityError:
        pass  # the same chunk came twice at the same moment; it is in
    return ChunkAck(True, chunk.seq + 1)


def _grams(session: Session, instance_id: str, stream: str, seq: int, raw: bytes) -> ChunkGrams:
    """What searches and the log viewer pass over the chunk by."""
    before = session.get(ChunkGrams, (instance_id, stream, seq - 1))
    data = (before.edge if before else b"") + raw
    edge = b"" if raw.endswith(b"\n") else data[-2:]
    warnings, errors = counts(raw)
    return ChunkGrams(
        instance_id=instance_id,
        stream=stream,
        seq=seq,
        warnings=warnings,
        errors=errors,
        edge=edge,
        bitmap=packed(data),
    )


def store_chunk(context: Context, token: str, stream: str, seq: int, chunk: ChunkRecord, frame: bytes) -> ChunkAck:
    """A chunk from the machine itself."""
    if chunk.seq != seq:
        raise AgentRefused(400, "bad_chunk", f"the address says chunk {seq}, the record {chunk.seq}")
    with context.sessions() as session:
        instance = authenticated(session, token)
    return add_chunk(context, instance, stream, chunk, frame)


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
    with context.sessions() as session:
        if session.get(Artifact, (instance.id, name)) is not None:
            return
        _refuse_sealed(session, instance)
        count = (
            session.scalar(select(func.count()).select_from(Artifact).where(Artifact.instance_id == instance.id)) or 0
        )
    if count >= MAX_ARTIFACTS_PER_INSTANCE:
        raise AgentRefused(413, "quota", f"an instance has at most {MAX_ARTIFACTS_PER_INSTANCE} artifacts")
    key = artifact_key(instance.run_id or "none", instance.id, name)
    try:
        context.store.put_once(key, data)  # type: ignore[arg-type]
    except ObjectConflict as error:
        raise AgentRefused(409, "conflict", f"another artifact {name} is in the archive") from error
    with writing(context.sessions) as session:
        if session.get(Artifact, (instance.id, name)) is None:
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
