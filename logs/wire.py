"""What crosses the wire between a rented machine and the archive: limits, names, records, keys.

Pure stdlib, shared by the agent and the controller. Everything here treats its input as
hostile and answers with `WireError`.

**Lines.** A line ends with one newline byte (0x0A). In a `ChunkRecord`, `lines` counts the
newline bytes inside the chunk, and `first_line` is the 1-based number of the line that the
chunk's first byte belongs to. A chunk may end inside a line, so always

    next.first_line == first_line + lines

and a line longer than a chunk is a run of records with `lines == 0` and the same `first_line`.

**Chain.** `prev_sha256` is `chain_hash` of the record before it in the same stream (seq - 1),
or `GENESIS` for seq 0. `chain_hash(r)` is the SHA-256 of `r`'s canonical JSON: all eight
fields, keys sorted, no spaces, ASCII. It covers the raw bytes (through `raw_sha256`), the
numbering, the times and, through `prev_sha256`, every earlier record: none can be changed,
swapped or removed without breaking all later links. It does not name the stream; the key does.

Times are milliseconds since the Unix epoch on the sender's clock.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

CHUNK_RAW_BYTES = 64 * KIB
CHUNK_INTERVAL_S = 2.0
TAIL_INTERVAL_S = 0.25
TAIL_FRAME_BYTES = 16 * KIB
MAX_FRAME_BYTES = CHUNK_RAW_BYTES + KIB  # zstd's own bound for 64 KiB that does not compress is +288 bytes
MAX_RECORD_BYTES = KIB
MAX_BATCH_CHUNKS = 64  # that one call may carry
MAX_BATCH_BYTES = MAX_BATCH_CHUNKS * (MAX_FRAME_BYTES + MAX_RECORD_BYTES)
SEGMENT_CHUNKS = 256  # the most that one object holds
SEGMENT_BYTES = 4 * MIB
MAX_STREAMS_PER_INSTANCE = 16
MAX_INSTANCE_BYTES = 2 * GIB  # raw log bytes of all streams of one instance
MAX_ARTIFACTS_PER_INSTANCE = 1000
MAX_ARTIFACT_BYTES = 256 * MIB
MAX_ARTIFACTS_BYTES = GIB  # of all artifacts of one instance
MAX_ARTIFACT_NAME = 240
MAX_ARTIFACT_DEPTH = 8
MAX_EMERGENCY_BYTES = 64 * MIB
MAX_AGENT_MANIFEST_BYTES = MIB
MAX_SEQ = 10**10 - 1  # ten digits in the key
MAX_TIME_MS = 2**53 - 1  # still exact in a browser

GENESIS = "0" * 64

_STREAM = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@=-]{0,99}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_WINDOWS_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


class WireError(ValueError):
    """Something that came over the wire breaks the rules; the text says which one."""


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """One chunk of one stream. Sizes in bytes, times in ms, digests in lower-case hex.

    `t_first_ms`: when the sender read the first byte; `t_last_ms`: when it closed the chunk.
    Building one checks the fields by themselves; `chunks.check_successor` checks its place.
    """

    seq: int
    first_line: int
    lines: int
    t_first_ms: int
    t_last_ms: int
    raw_bytes: int
    raw_sha256: str
    prev_sha256: str

    def __post_init__(self) -> None:
        _check_int("seq", self.seq, 0, MAX_SEQ)
        _check_int("first_line", self.first_line, 1, MAX_TIME_MS)
        _check_int("raw_bytes", self.raw_bytes, 1, CHUNK_RAW_BYTES)
        _check_int("lines", self.lines, 0, self.raw_bytes)
        _check_int("t_first_ms", self.t_first_ms, 0, MAX_TIME_MS)
        _check_int("t_last_ms", self.t_last_ms, self.t_first_ms, MAX_TIME_MS)
        check_sha256(self.raw_sha256, "raw_sha256")
        check_sha256(self.prev_sha256, "prev_sha256")

    @property
    def next_line(self) -> int:
        """The number of the line that the byte after this chunk belongs to."""
        return self.first_line + self.lines

    def to_dict(self) -> dict[str, int | str]:
        """The eight fields, as JSON has them."""
        return {name: getattr(self, name) for name in _RECORD_FIELDS}  # a tenth of the time that asdict takes

    def to_json(self) -> str:
        """Canonical JSON: what `chain_hash` hashes and what a sender ships."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_dict(cls, value: Any) -> ChunkRecord:
        """From a parsed JSON object with exactly the eight fields. Raises `WireError`."""
        if not isinstance(value, Mapping):
            raise WireError("a chunk record must be a JSON object")
        if set(value) != _RECORD_FIELDS:
            odd = sorted(str(name)[:40] for name in set(value) ^ _RECORD_FIELDS)[:4]
            raise WireError(f"a chunk record has exactly {len(_RECORD_FIELDS)} fields; missing or unknown: {odd}")
        return cls(**value)

    @classmethod
    def from_json(cls, text: str | bytes) -> ChunkRecord:
        """From JSON text of at most `MAX_RECORD_BYTES`. Raises `WireError`."""
        if len(text) > MAX_RECORD_BYTES:
            raise WireError(f"a chunk record is at most {MAX_RECORD_BYTES} bytes")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise WireError("a chunk record must be JSON") from error
        return cls.from_dict(value)


_RECORD_FIELDS = frozenset(field.name for field in fields(ChunkRecord))


def chain_hash(record: ChunkRecord) -> str:
    """The link that the next record of the stream must carry in `prev_sha256`."""
    return hashlib.sha256(record.to_json().encode("ascii")).hexdigest()


def check_stream_name(name: object) -> str:
    """The name itself if it is `[a-z][a-z0-9_-]{0,31}`; else `WireError`."""
    if not isinstance(name, str) or not _STREAM.fullmatch(name):
        raise WireError(f"bad stream name {_shown(name)}: 1 to 32 of a-z 0-9 _ -, a letter first")
    return name


def check_artifact_name(name: object) -> str:
    """The name itself if it is a harmless relative path; else `WireError`.

    At most 8 segments joined by `/`, 240 characters in all, each 1 to 100 of
    `A-Z a-z 0-9 . _ + @ = -`, not starting with `.`, `+`, `@`, `=` or `-` (hidden files, `..`,
    options), not ending with `.`, and no Windows device name.
    """
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ARTIFACT_NAME:
        raise WireError(f"bad artifact name {_shown(name)}: 1 to {MAX_ARTIFACT_NAME} characters")
    segments = name.split("/")
    if len(segments) > MAX_ARTIFACT_DEPTH:
        raise WireError(f"bad artifact name {_shown(name)}: at most {MAX_ARTIFACT_DEPTH} folders deep")
    for segment in segments:
        if not _SEGMENT.fullmatch(segment) or segment.endswith("."):
            raise WireError(f"bad artifact name {_shown(name)}: segment {_shown(segment)} is not allowed")
        if _WINDOWS_DEVICE.fullmatch(segment):
            raise WireError(f"bad artifact name {_shown(name)}: {_shown(segment)} is a Windows device")
    return name


def check_id(value: object, what: str = "id") -> str:
    """A run or instance id fit for a key: 1 to 64 of `A-Z a-z 0-9 -`, else `WireError`."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise WireError(f"bad {what} {_shown(value)}: 1 to 64 letters, digits and -")
    return value


def check_sha256(value: object, what: str = "sha256") -> str:
    """64 lower-case hex digits, else `WireError`."""
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise WireError(f"{what} must be 64 lower-case hex digits")
    return value


def instance_prefix(run: str, instance: str) -> str:
    """Everything of one instance lies under this. Names that start with `_` can't be streams."""
    return f"runs/{check_id(run, 'run id')}/{check_id(instance, 'instance id')}/"


def chunk_key(run: str, instance: str, stream: str, seq: int) -> str:
    """The object of one chunk: one zstd frame."""
    _check_int("seq", seq, 0, MAX_SEQ)
    return f"{instance_prefix(run, instance)}{check_stream_name(stream)}/{seq:010d}.zst"


def segment_key(run: str, instance: str, stream: str, first_seq: int, last_seq: int, mark: str) -> str:
    """The object of consecutive chunks: their frames, one behind the other. `mark` tells one writing from another."""
    _check_int("first_seq", first_seq, 0, MAX_SEQ)
    _check_int("last_seq", last_seq, first_seq, MAX_SEQ)
    prefix = f"{instance_prefix(run, instance)}{check_stream_name(stream)}"
    return f"{prefix}/_segments/{first_seq:010d}-{last_seq:010d}-{check_id(mark, 'mark')}.zst"


def artifact_key(run: str, instance: str, name: str) -> str:
    """The object of one artifact, its bytes as they are."""
    return f"{instance_prefix(run, instance)}_artifacts/{check_artifact_name(name)}"


def manifest_key(run: str, instance: str) -> str:
    """The controller's manifest, JSON."""
    return f"{instance_prefix(run, instance)}_evidence/manifest.json"


def bundle_key(run: str, instance: str) -> str:
    """The sealed bundle."""
    return f"{instance_prefix(run, instance)}_evidence/evidence.zip"


def emergency_key(run: str, instance: str) -> str:
    """Where an agent without a controller puts what it still has (see `logs.emergency`)."""
    return f"{instance_prefix(run, instance)}_emergency/spool.zip"


def input_key(sha256: str) -> str:
    """An uploaded key or witness, by content."""
    return f"inputs/{check_sha256(sha256)}"


def _check_int(what: str, value: object, low: int, high: int) -> None:
    # bool is an int in Python, and True must not pass for seq 1.
    if type(value) is not int or not low <= value <= high:
        raise WireError(f"{what} must be a whole number from {low} to {high}")


def _shown(value: object) -> str:
    return ascii(value if isinstance(value, str) else type(value).__name__)[:80]
