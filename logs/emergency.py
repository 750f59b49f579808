"""The emergency upload: what an agent that lost its controller still had, as one zip.

    manifest.json                          the agent's own manifest
    chunks/<stream>/<seq, 10 digits>.json  the chunk record
    chunks/<stream>/<seq, 10 digits>.zst   its frame

All members are stored, not deflated: frames are compressed already, and an unpacker that
refuses deflate can't be bombed. Stdlib only, so that the agent may import it. Unpacking
checks the container and the records; `chunks.open_frame` must still check each frame.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from logs.wire import (
    MAX_AGENT_MANIFEST_BYTES,
    MAX_EMERGENCY_BYTES,
    MAX_FRAME_BYTES,
    MAX_RECORD_BYTES,
    ChunkRecord,
    WireError,
    check_stream_name,
)

MAX_MEMBERS = 40_000  # the plain zip format counts to 65,535; 20,000 chunks of 2 s are 11 hours
_MANIFEST = "manifest.json"
_MEMBER = re.compile(r"chunks/([a-z][a-z0-9_-]{0,31})/([0-9]{10})\.(json|zst)")
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
_END = struct.Struct("<4s4H2LH")
_MAX_DIRECTORY_ENTRY = 46 + 64
# Per member: local header, directory entry, name twice. The end record once.
_MEMBER_OVERHEAD = 30 + 46 + 2 * 64


class EmergencyRefused(WireError):
    """An emergency zip that breaks the rules; the text says which one."""


@dataclass(frozen=True)
class Emergency:
    """An opened emergency zip. `chunks` is read lazily, sorted by stream and seq, and raises
    `WireError` at the first bad member: earlier ones have been handed out by then.
    """

    manifest: dict[str, Any]
    chunks: Iterator[tuple[str, ChunkRecord, bytes]]


def pack_emergency(
    out: BinaryIO,
    manifest: dict[str, Any],
    chunks: Iterable[tuple[str, ChunkRecord, bytes]],
    max_bytes: int = MAX_EMERGENCY_BYTES,
) -> int:
    """Writes the zip to `out`; returns how many chunks went in.

    Stops before the first chunk that would pass `max_bytes` or `MAX_MEMBERS`, so give the
    chunks that matter most first. `WireError` if the manifest alone is too large.
    """
    text = json.dumps(manifest, sort_keys=True).encode()
    if len(text) > MAX_AGENT_MANIFEST_BYTES:
        raise WireError(f"the agent's manifest is over {MAX_AGENT_MANIFEST_BYTES} bytes")
    used = len(text) + _MEMBER_OVERHEAD + _END.size
    packed = 0
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_MANIFEST, _FIXED_DATE), text)
        for stream, record, frame in chunks:
            record_text = record.to_json()
            used += len(record_text) + len(frame) + 2 * _MEMBER_OVERHEAD
            if used > max_bytes or 2 * packed + 3 > MAX_MEMBERS:
                break
            name = f"chunks/{check_stream_name(stream)}/{record.seq:010d}"
            archive.writestr(zipfile.ZipInfo(f"{name}.json", _FIXED_DATE), record_text)
            archive.writestr(zipfile.ZipInfo(f"{name}.zst", _FIXED_DATE), frame)
            packed += 1
    return packed


def unpack_emergency(file: BinaryIO) -> Emergency:
    """Opens a zip that a stranger wrote. `file` must be seekable and stay open while
    `chunks` is read. Raises `EmergencyRefused`.
    """
    _check_end(file)
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        raise EmergencyRefused(f"not a zip: {error}") from error
    members = _members(archive)
    if _MANIFEST not in members:
        raise EmergencyRefused("no manifest.json")
    text = _read(archive, members.pop(_MANIFEST), MAX_AGENT_MANIFEST_BYTES)
    try:
        manifest = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise EmergencyRefused("manifest.json is not JSON") from error
    if not isinstance(manifest, dict):
        raise EmergencyRefused("manifest.json is not an object")
    return Emergency(manifest, _chunks(archive, members))


def _check_end(file: BinaryIO) -> None:
    """Bounds the directory before `zipfile` builds an object for each entry of it."""
    size = file.seek(0, 2)
    if not _END.size <= size <= MAX_EMERGENCY_BYTES:
        raise EmergencyRefused(f"{size} bytes; at most {MAX_EMERGENCY_BYTES}")
    file.seek(max(0, size - _END.size - 20))
    tail = file.read()
    signature, disk, start_disk, here, total, directory, _offset, comment = _END.unpack(tail[-_END.size :])
    if signature != b"PK\x05\x06" or comment or disk or start_disk or here != total:
        raise EmergencyRefused("not a plain zip without a comment")
    if tail.startswith(b"PK\x06\x07"):
        raise EmergencyRefused("zip64 is not accepted")
    if total > MAX_MEMBERS or directory > MAX_MEMBERS * _MAX_DIRECTORY_ENTRY:
        raise EmergencyRefused(f"more than {MAX_MEMBERS} members")


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename
        if name != _MANIFEST and not _MEMBER.fullmatch(name):
            raise EmergencyRefused(f"member {ascii(name)[:80]} is not expected")
        if name in members:
            raise EmergencyRefused(f"member {name} twice")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise EmergencyRefused(f"member {name} is compressed or encrypted")
        members[name] = info
    if len(members) > MAX_MEMBERS:
        raise EmergencyRefused(f"more than {MAX_MEMBERS} members")
    return members


def _chunks(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> Iterator[tuple[str, ChunkRecord, bytes]]:
    for name in sorted(members):
        match = _MEMBER.fullmatch(name)
        if match is None or match[3] != "json":
            continue
        frame_name = name.removesuffix("json") + "zst"
        if frame_name not in members:
            raise EmergencyRefused(f"member {name} has no frame beside it")
        record = ChunkRecord.from_json(_read(archive, members[name], MAX_RECORD_BYTES))
        if record.seq != int(match[2]):
            raise EmergencyRefused(f"member {name} holds the record of chunk {record.seq}")
        yield match[1], record, _read(archive, members[frame_name], MAX_FRAME_BYTES)


def _no_constant(name: str) -> None:
    # Python reads NaN and Infinity, but no other reader of our manifest would.
    raise ValueError(f"{name} is not JSON")


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    if info.file_size > limit or info.compress_size != info.file_size:
        raise EmergencyRefused(f"member {info.filename} is over {limit} bytes")
    try:
        return archive.read(info)
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, struct.error) as error:
        raise EmergencyRefused(f"member {info.filename} is damaged: {error}") from error
