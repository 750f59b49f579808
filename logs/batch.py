"""Several chunks of one stream in the body of one call. Pure stdlib, shared by the agent and the controller.

For each chunk: its record as JSON, a newline, the length of its frame in decimal digits, a newline, the frame.
"""

from __future__ import annotations

from collections.abc import Iterable

from logs.wire import MAX_BATCH_CHUNKS, MAX_FRAME_BYTES, MAX_RECORD_BYTES, ChunkRecord, WireError

MAX_DIGITS = len(str(MAX_FRAME_BYTES))


def pack_batch(chunks: Iterable[tuple[ChunkRecord, bytes]]) -> bytes:
    """The body."""
    return b"".join(b"%s\n%d\n%s" % (record.to_json().encode(), len(frame), frame) for record, frame in chunks)


def unpack_batch(body: bytes) -> list[tuple[ChunkRecord, bytes]]:
    """The chunks of a body, 1 to 64 of them; frames as they came, unchecked. Raises `WireError`."""
    chunks: list[tuple[ChunkRecord, bytes]] = []
    at = 0
    while at < len(body):
        if len(chunks) == MAX_BATCH_CHUNKS:
            raise WireError(f"at most {MAX_BATCH_CHUNKS} chunks at once")
        text, at = _line(body, at, MAX_RECORD_BYTES)
        digits, at = _line(body, at, MAX_DIGITS)
        if not digits.isdigit() or int(digits) > MAX_FRAME_BYTES:
            raise WireError(f"chunk {len(chunks)} of the batch: its length is no number up to {MAX_FRAME_BYTES}")
        frame = body[at : at + int(digits)]
        at += len(frame)
        if len(frame) != int(digits):
            raise WireError(f"chunk {len(chunks)} of the batch: its frame is cut off")
        chunks.append((ChunkRecord.from_json(text), frame))
    if not chunks:
        raise WireError("a batch has at least one chunk")
    return chunks


def _line(body: bytes, at: int, most: int) -> tuple[bytes, int]:
    end = body.find(b"\n", at, at + most + 1)
    if end < 0:
        raise WireError("a batch is records and lengths, a line each, and frames between them")
    return body[at:end], end + 1
