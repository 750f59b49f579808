"""iden3's binary container, the frame of `.zkey`, `.wtns` and `.r1cs`, mapped into memory.

Format (github.com/iden3/binfileutils): magic (4 bytes), version (u32), number of sections (u32), then for
each section its type (u32), its length (u64) and its bytes; little-endian. Nothing is allocated from a length
that the file claims: a section is a view of the mapping, and must lie inside the file. A mapped file may be
replaced by a rename at any time, but whoever truncates it in place while it is read ends the reading process
(SIGBUS; `gpu.cut_short` makes that one line and exit code 1): write keys beside, then rename.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gpu.errors import BadFile

MAX_SECTIONS = 64  # snarkjs writes at most 10; a forged count must not cost time


@dataclass(frozen=True)
class Kind:
    """What distinguishes the three file types: magic, version, section names, and where a good one comes
    from.
    """

    magic: bytes
    version: int
    sections: dict[int, str]
    todo: str


class BinFile:
    """A mapped file of one `Kind` whose frame is sound and whose named sections are all there, once each.

    `content` stands for what it holds: another value when the file was written or replaced.
    """

    def __init__(self, path: str | os.PathLike[str], kind: Kind) -> None:
        self.path = Path(path)
        self.kind = kind
        self.size = 0
        self.content = ""
        self._map = self._open()
        self._view = memoryview(self._map)
        self._sections = self._read_table()

    def bad(self, section: int | str, why: str, todo: str | None = None) -> BadFile:
        """The error to raise for a fault in `section` (its number, or words)."""
        if isinstance(section, int):
            section = f"section {section} ({self.kind.sections.get(section, 'unknown')})"
        return BadFile(self.path, section, why, todo or self.kind.todo)

    def section(self, number: int) -> memoryview:
        offset, length = self._sections[number]
        return self._view[offset : offset + length]

    def has(self, number: int) -> bool:
        """Whether there is such a section: only those that the kind names are sure to be there."""
        return number in self._sections

    def length(self, number: int) -> int:
        return self._sections[number][1]

    def expect_length(self, number: int, length: int, reason: str) -> None:
        if self.length(number) != length:
            raise self.bad(number, f"is {self.length(number)} bytes long, but {reason} make it {length}")

    def u32(self, number: int, offset: int) -> int:
        return self._unpack(number, "<I", offset)

    def u64(self, number: int, offset: int) -> int:
        return self._unpack(number, "<Q", offset)

    def integer(self, number: int, offset: int, n_bytes: int) -> int:
        """A little-endian unsigned integer of `n_bytes` inside a section."""
        if offset + n_bytes > self.length(number):
            raise self.bad(number, f"ends after {self.length(number)} bytes, {offset + n_bytes} are needed")
        return int.from_bytes(self.section(number)[offset : offset + n_bytes], "little")

    def _unpack(self, number: int, form: str, offset: int) -> int:
        if offset + struct.calcsize(form) > self.length(number):
            raise self.bad(number, f"ends after {self.length(number)} bytes, a field at {offset} is missing")
        return struct.unpack_from(form, self.section(number), offset)[0]

    def _open(self) -> mmap.mmap:
        try:
            with self.path.open("rb") as file:
                stat = os.fstat(file.fileno())
                self.size = stat.st_size
                self.content = f"{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}"
                if self.size < 12:
                    raise self.bad("header", f"the file is {self.size} bytes long, not even a header")
                # A private writable mapping: nothing is copied, and numpy gets the array type that kernels
                # are compiled for (a read-only one would compile everything twice).
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise self.bad("file", f"cannot be read: {why}", "check the path and its permissions") from error

    def _read_table(self) -> dict[int, tuple[int, int]]:
        magic, version, count = struct.unpack_from("<4sII", self._view, 0)
        if magic != self.kind.magic:
            raise self.bad("header", f"magic is {magic!r}, not {self.kind.magic!r}")
        if version != self.kind.version:
            raise self.bad("header", f"version is {version}, only {self.kind.version} is known")
        if count > MAX_SECTIONS:
            raise self.bad("header", f"claims {count} sections, at most {MAX_SECTIONS} are allowed")
        table: dict[int, tuple[int, int]] = {}
        at = 12
        for _ in range(count):
            if at + 12 > self.size:
                raise self.bad("section table", f"the file ends at byte {self.size}, inside a section header")
            number, length = struct.unpack_from("<IQ", self._view, at)
            at += 12
            if length > self.size - at:
                raise self.bad(number, f"claims {length} bytes, but the file has {self.size - at} left")
            if number in table:
                raise self.bad(number, "appears twice")
            table[number] = (at, length)
            at += length
        if at != self.size:
            raise self.bad("section table", f"{self.size - at} bytes follow the last section")
        for number in self.kind.sections:
            if number not in table:
                raise self.bad(number, "is missing")
        return table


class BinWriter:
    """Writes a file of one `Kind` as it comes: `section` starts one, `write` adds to it, `end` finishes the file."""

    def __init__(self, file: BinaryIO, kind: Kind) -> None:
        self._file = file
        self._count = 0
        self._begin = 0
        file.write(struct.pack("<4sII", kind.magic, kind.version, 0))

    def section(self, number: int) -> None:
        """What is written from now on belongs to this section."""
        self._close()
        self._count += 1
        self._file.write(struct.pack("<IQ", number, 0))
        self._begin = self._file.tell()

    def write(self, content: bytes | memoryview) -> None:
        self._file.write(content)

    def patch(self, offset: int, content: bytes) -> None:
        """Overwrites bytes of the section that is being written: a count that is known only after its items."""
        end = self._file.tell()
        self._file.seek(self._begin + offset)
        self._file.write(content)
        self._file.seek(end)

    def end(self) -> None:
        """Closes the last section and writes the number of them into the header."""
        self._close()
        self._file.seek(8)
        self._file.write(struct.pack("<I", self._count))
        self._file.seek(0, os.SEEK_END)

    def _close(self) -> None:
        if self._count:
            self.patch(-8, struct.pack("<Q", self._file.tell() - self._begin))


def container(kind: Kind, sections: Iterable[tuple[int, bytes]]) -> bytes:
    """The bytes of a file of this kind with these (number, content) sections, in this order."""
    parts = list(sections)
    out = [struct.pack("<4sII", kind.magic, kind.version, len(parts))]
    for number, content in parts:
        out.append(struct.pack("<IQ", number, len(content)))
        out.append(content)
    return b"".join(out)
