"""The sealed bundle: one zip that anyone can read and check without our software.

    unzip evidence.zip && sha256sum -c SHA256SUMS

    manifest.json            the controller's manifest (`logs.evidence`)
    streams/<name>.log       the stream's bytes, decompressed; nothing stands in for what is missing
    streams/<name>.gaps      where bytes are missing, if any are
    chunks/<name>.jsonl      the chunk records, one a line: the hash chain
    artifacts/<name>         as they came
    SHA256SUMS               of all the above

Written to the store as it is made, with bounded memory. The same manifest and records give the
same bytes, so that sealing twice is harmless.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, cast

from logs.errors import NoSuchObject
from logs.frames import read_chunks
from logs.gaps import in_order, missing_text
from logs.multipart import MAX_PARTS, PART_BYTES, PartWriter
from logs.segments import NONE, Segments
from logs.store import Store
from logs.wire import (
    MIB,
    ChunkRecord,
    artifact_key,
    bundle_key,
    check_artifact_name,
    check_stream_name,
    manifest_key,
)

MAX_MANIFEST_BYTES = 16 * MIB
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
_LEVEL = 3  # logs shrink well at any level, and the seal has a deadline


@dataclass(frozen=True)
class Bundle:
    """A bundle in the store. `problems`: what the archive no longer had whole when it was made
    (a lost or altered object), one line each; empty as a rule.
    """

    key: str
    sha256: str
    bytes: int
    problems: tuple[str, ...]


def write_bundle(
    store: Store,
    manifest: Mapping[str, Any],
    streams: Mapping[str, Iterable[ChunkRecord]],
    segments: Mapping[str, Segments] | None = None,
) -> Bundle:
    """Writes the manifest and the bundle of one instance, each once.

    `streams`: the records that the manifest was built from; `segments`: where their bytes are. Raises
    `ObjectConflict` if another manifest or bundle was sealed before (`load_manifest` gives that one),
    `StoreUnavailable`, `StoreRefused`; then no half bundle is left, and doing it again is right.
    """
    run, instance = manifest["run"], manifest["instance"]
    text = json.dumps(manifest, sort_keys=True, indent=1).encode() + b"\n"
    store.put_once(manifest_key(run, instance), text)
    key = bundle_key(run, instance)
    with (
        PartWriter(store, key, PART_BYTES * MAX_PARTS, once=True) as out,
        zipfile.ZipFile(cast("IO[bytes]", out), "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive,
    ):
        writer = _BundleWriter(archive, store, run, instance)
        writer.add("manifest.json", [text], len(text))
        for name in manifest["streams"]:
            held = (segments or {}).get(name, NONE)
            writer.add_stream(name, in_order(streams.get(name, ())), held, manifest["streams"][name]["gaps"])
        for artifact in manifest["artifacts"]:
            writer.add_artifact(artifact)
        writer.add_sums()
    return Bundle(key, out.sha256, out.bytes, tuple(writer.problems))


def load_manifest(store: Store, run: str, instance: str) -> dict[str, Any]:
    """The sealed manifest. Raises `NoSuchObject` if there is none."""
    manifest: dict[str, Any] = json.loads(store.get(manifest_key(run, instance), MAX_MANIFEST_BYTES))
    return manifest


class _BundleWriter:
    def __init__(self, archive: zipfile.ZipFile, store: Store, run: str, instance: str) -> None:
        self._archive = archive
        self._store = store
        self._run = run
        self._instance = instance
        self._sums: list[str] = []
        self.problems: list[str] = []

    def add(self, name: str, pieces: Iterable[bytes], size_hint: int) -> str:
        """Adds a member piece by piece; returns its SHA-256. `size_hint` decides about zip64."""
        info = zipfile.ZipInfo(name, _FIXED_DATE)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.create_system = 3
        info.external_attr = 0o644 << 16
        info.file_size = size_hint
        digest = hashlib.sha256()
        with self._archive.open(info, "w") as member:
            for piece in pieces:
                digest.update(piece)
                member.write(piece)
        self._sums.append(f"{digest.hexdigest()}  {name}\n")
        return digest.hexdigest()

    def add_stream(self, name: str, records: list[ChunkRecord], segments: Segments, gaps: list[dict[str, Any]]) -> None:
        """Adds a stream's bytes, its records and, if anything is missing, its gaps."""
        check_stream_name(name)
        missing = [(gap["after_bytes"], gap["text"], gap["first_seq"], gap["last_seq"]) for gap in gaps]

        def pieces() -> Iterator[bytes]:
            at = 0
            for chunk in read_chunks(self._store, self._run, self._instance, name, records, segments):
                record = chunk.record
                if chunk.damage:
                    text = f"{missing_text(record.first_line, record.next_line)}, {chunk.damage}"
                    missing.append((at, text, record.seq, record.seq))
                    self.problems.append(f"stream {name}: {text}")
                at += record.raw_bytes
                yield chunk.raw

        self.add(f"streams/{name}.log", pieces(), sum(record.raw_bytes for record in records))
        lines = "".join(record.to_json() + "\n" for record in records)
        self.add(f"chunks/{name}.jsonl", [lines.encode()], len(lines))
        if missing:
            told = "".join(
                f"after byte {at} of what was received: {text} (chunks {first} to {last})\n"
                for at, text, first, last in sorted(missing)
            )
            self.add(f"streams/{name}.gaps", [told.encode()], len(told))

    def add_artifact(self, artifact: Mapping[str, Any]) -> None:
        """Adds an artifact, or notes that the store has lost it or holds other bytes."""
        name = check_artifact_name(artifact["name"])
        try:
            opened = self._store.open_range(artifact_key(self._run, self._instance, name))
        except NoSuchObject:
            self.problems.append(f"artifact {name}: lost from the store")
            return
        digest = self.add(f"artifacts/{name}", opened, opened.bytes)
        if digest != artifact["sha256"]:
            self.problems.append(f"artifact {name}: its bytes are not those that were received")

    def add_sums(self) -> None:
        """Adds SHA256SUMS in the format of `sha256sum`."""
        sums = "".join(self._sums)
        self.add("SHA256SUMS", [sums.encode()], len(sums))
