"""Cutting a stream into chunks on the machine, and checking them on the controller.

A frame is one zstd frame with its content size in the header, at most 64 KiB raw. The
clock is always passed in. Stdlib and zstandard only: the agent imports this.
"""

from __future__ import annotations

import hashlib
from collections import deque

import zstandard

from logs.wire import (
    CHUNK_INTERVAL_S,
    CHUNK_RAW_BYTES,
    GENESIS,
    MAX_FRAME_BYTES,
    MAX_TIME_MS,
    ChunkRecord,
    chain_hash,
    check_stream_name,
)

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_INTERVAL_MS = int(CHUNK_INTERVAL_S * 1000)
# A cut at a newline reads better, but a chunk should not shrink under half for it.
_NEWLINE_WINDOW = CHUNK_RAW_BYTES // 2


class ChunkRefused(ValueError):
    """A frame or record that does not hold what it claims; the text says why."""


class ChunkCutter:
    """Cuts one stream into chunks. Not thread-safe: one reader thread feeds one cutter.

        cutter.feed(data, now_ms)
        while cutter.due(now_ms):
            record, frame = cutter.cut(now_ms)   # spool both, then ship
        ...
        while (chunk := cutter.cut(now_ms)) is not None: ...   # at the end of the stream

    Bytes are cut as they are: a chunk may end inside a line or a UTF-8 sequence.
    """

    def __init__(self, stream: str, *, seq: int = 0, line: int = 1, prev_sha256: str = GENESIS) -> None:
        """Starts at a new stream, or where `seq`, `line` and `prev_sha256` (see `resume`) say."""
        self.stream = check_stream_name(stream)
        self.seq = seq
        self.line = line
        self.prev_sha256 = prev_sha256
        self._buffer = bytearray()
        # (offset, time) pairs: from that many bytes fed on, bytes were read at that time.
        self._marks: deque[tuple[int, int]] = deque()
        self._fed = 0
        self._cut = 0
        self._compressor = zstandard.ZstdCompressor(level=3, write_content_size=True)

    @classmethod
    def resume(cls, stream: str, last: ChunkRecord) -> ChunkCutter:
        """Goes on after the last spooled record of this stream."""
        return cls(stream, seq=last.seq + 1, line=last.next_line, prev_sha256=chain_hash(last))

    @property
    def buffered(self) -> int:
        """Bytes fed and not yet cut."""
        return len(self._buffer)

    def feed(self, data: bytes, now_ms: int) -> None:
        """Takes any number of bytes, read at `now_ms`."""
        if not data:
            return
        if not self._marks or self._marks[-1][1] != now_ms:
            self._marks.append((self._fed, now_ms))
        self._buffer += data
        self._fed += len(data)

    def due(self, now_ms: int) -> bool:
        """True when a full chunk is waiting, or any byte has waited for 2 s.

        A clock that was set back makes what waits due at once rather than never.
        """
        if not self._buffer:
            return False
        waited = now_ms - self._marks[0][1]
        return len(self._buffer) >= CHUNK_RAW_BYTES or waited >= _INTERVAL_MS or waited < 0

    def cut(self, now_ms: int) -> tuple[ChunkRecord, bytes] | None:
        """The next chunk (at most 64 KiB) and its frame, due or not; None when nothing waits."""
        if not self._buffer:
            return None
        size = self._cut_at()
        raw = bytes(memoryview(self._buffer)[:size])
        t_first_ms = min(max(self._marks[0][1], 0), MAX_TIME_MS)
        record = ChunkRecord(
            seq=self.seq,
            first_line=self.line,
            lines=raw.count(b"\n"),
            t_first_ms=t_first_ms,
            t_last_ms=min(max(now_ms, t_first_ms), MAX_TIME_MS),
            raw_bytes=size,
            raw_sha256=hashlib.sha256(raw).hexdigest(),
            prev_sha256=self.prev_sha256,
        )
        frame = self._compressor.compress(raw)
        self._advance(size, record)
        return record, frame

    def _cut_at(self) -> int:
        if len(self._buffer) <= CHUNK_RAW_BYTES:
            return len(self._buffer)
        newline = self._buffer.rfind(b"\n", _NEWLINE_WINDOW, CHUNK_RAW_BYTES)
        return newline + 1 if newline >= 0 else CHUNK_RAW_BYTES

    def _advance(self, size: int, record: ChunkRecord) -> None:
        del self._buffer[:size]
        self._cut += size
        while len(self._marks) > 1 and self._marks[1][0] <= self._cut:
            self._marks.popleft()
        if not self._buffer:
            self._marks.clear()
        self.seq += 1
        self.line = record.next_line
        self.prev_sha256 = chain_hash(record)


def open_frame(frame: bytes, record: ChunkRecord) -> bytes:
    """The raw bytes of a frame, if it is exactly what its record claims; else `ChunkRefused`.

    The size in the frame's header is checked before anything is allocated; a header that
    lies makes zstd fail. More than one frame, bytes after it, dictionaries and skippable
    frames are refused.
    """
    if len(frame) > MAX_FRAME_BYTES:
        raise ChunkRefused(f"frame of {len(frame)} bytes; at most {MAX_FRAME_BYTES}")
    if frame[:4] != _ZSTD_MAGIC:
        raise ChunkRefused("not a zstd frame")
    try:
        header = zstandard.get_frame_parameters(frame)
        if header.dict_id:
            raise ChunkRefused("frame needs a dictionary")
        if header.content_size != record.raw_bytes:
            raise ChunkRefused("size in the frame header is not raw_bytes")
        raw = zstandard.ZstdDecompressor().decompress(frame, max_output_size=CHUNK_RAW_BYTES, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ChunkRefused(f"frame can't be decompressed: {error}") from error
    if len(raw) != record.raw_bytes:
        raise ChunkRefused("frame does not hold raw_bytes bytes")
    if hashlib.sha256(raw).hexdigest() != record.raw_sha256:
        raise ChunkRefused("raw_sha256 does not match")
    if raw.count(b"\n") != record.lines:
        raise ChunkRefused("lines is not the number of newlines")
    return raw


def check_successor(previous: ChunkRecord | None, record: ChunkRecord) -> None:
    """Checks that `record` follows `previous` (None: that it opens the stream): number,
    first line and hash chain. Raises `ChunkRefused`.
    """
    seq = previous.seq + 1 if previous else 0
    line = previous.next_line if previous else 1
    if record.seq != seq:
        raise ChunkRefused(f"seq {record.seq} where {seq} must come")
    if record.first_line != line:
        raise ChunkRefused(f"chunk {seq} starts at line {record.first_line}, not {line}")
    if record.prev_sha256 != (chain_hash(previous) if previous else GENESIS):
        raise ChunkRefused(f"hash chain broken at chunk {seq}")
