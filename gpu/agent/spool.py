"""Chunks that wait for the archive: on disk, or in memory for as long as the disk is full."""

from __future__ import annotations

import contextlib
import shutil
from collections import OrderedDict
from pathlib import Path

from logs.wire import ChunkRecord, WireError

MEMORY_BYTES = 16 << 20
KEPT_BYTES = 16 << 20


class SpoolFull(Exception):
    """The disk takes no more and memory is used up: the chunk is lost. The text says why."""


class Spool:
    """The chunks of one stream by their number. Acknowledged ones are kept too, newest 16 MiB, so that a controller
    that lost some can have them again. Not thread-safe: the stream's lock guards it."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._memory: dict[int, tuple[ChunkRecord, bytes]] = {}
        self._memory_bytes = 0
        self._kept: OrderedDict[int, int] = OrderedDict()
        self._kept_bytes = 0

    def add(self, record: ChunkRecord, frame: bytes) -> str:
        """Keep a chunk; the reason when it had to be kept in memory, else "". Raises `SpoolFull`."""
        path = self._path(record.seq)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(record.to_json().encode() + b"\n" + frame)
            return ""
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            if self._memory_bytes + len(frame) > MEMORY_BYTES:
                raise SpoolFull(f"{error.strerror or error}, and the memory set aside is full") from error
            self._memory[record.seq] = (record, frame)
            self._memory_bytes += len(frame)
            return error.strerror or str(error)

    def get(self, seq: int) -> tuple[ChunkRecord, bytes] | None:
        """The chunk, None if it is not here (any more)."""
        if seq in self._memory:
            return self._memory[seq]
        try:
            text, _, frame = self._path(seq).read_bytes().partition(b"\n")
            return ChunkRecord.from_json(text), frame
        except (OSError, WireError):
            return None

    def acknowledged(self, seq: int) -> None:
        """The archive has it: let the oldest of these go once there are many."""
        if (in_memory := self._memory.pop(seq, None)) is not None:
            self._memory_bytes -= len(in_memory[1])
            return
        try:
            size = self._path(seq).stat().st_size
        except OSError:
            return
        if seq in self._kept:
            return
        self._kept[seq] = size
        self._kept_bytes += size
        while self._kept_bytes > KEPT_BYTES:
            oldest, size = self._kept.popitem(last=False)
            self._kept_bytes -= size
            with contextlib.suppress(OSError):
                self._path(oldest).unlink()

    def remove(self) -> None:
        """Delete everything."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, seq: int) -> Path:
        return self._folder / f"{seq:010d}.chunk"
