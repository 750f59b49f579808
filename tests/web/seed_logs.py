"""What is known of the text of a seeded chunk, as taking it in finds out."""

from __future__ import annotations

from jobs.domain.search_models import ChunkGrams
from logs.chunks import open_frame
from logs.grams import packed
from logs.levels import counts
from logs.wire import ChunkRecord


def known_of(instance_id: str, stream: str, record: ChunkRecord, frame: bytes, edge: bytes) -> ChunkGrams:
    """The row of a chunk; `edge`: the last two bytes of the one before, where its last line goes on in this one."""
    raw = open_frame(frame, record)
    warnings, errors = counts(raw)
    return ChunkGrams(
        instance_id=instance_id,
        stream=stream,
        seq=record.seq,
        warnings=warnings,
        errors=errors,
        edge=b"" if raw.endswith(b"\n") else (edge + raw)[-2:],
        bitmap=packed(edge + raw),
    )
