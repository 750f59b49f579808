from __future__ import annotations

import hashlib
import os
import random
import subprocess
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logs.bundle import Bundle, load_manifest, write_bundle
from logs.errors import NoSuchObject, ObjectConflict, StoreUnavailable
from logs.evidence import Artifact, build_manifest
from logs.store import Store
from logs.wire import MIB, ChunkRecord, artifact_key, bundle_key, chain_hash, chunk_key
from tests.logs.conftest import T0
from tests.logs.test_store import NOWHERE

Archived = Callable[..., list[ChunkRecord]]
Streams = dict[str, list[ChunkRecord]]


def manifest_of(instance: str, streams: Streams, artifacts: list[Artifact], **changes: Any) -> dict[str, Any]:
    ends = {
        name: {"chunks": records[-1].seq + 1, "lines": records[-1].next_line - 1, "chain": chain_hash(records[-1])}
        for name, records in streams.items()
        if records
    }
    arguments: dict[str, Any] = {
        "run": "r1",
        "instance": instance,
        "streams": streams,
        "artifacts": artifacts,
        "exit_codes": {"benchmark": 0},
        "stages": [{"stage": "benchmark", "ms": 1234}],
        "hardware": {"cpu": "x"},
        "telemetry": {},
        "agent_manifest": {"streams": ends},
        "vanished_at_ms": None,
        "sealed_at_ms": T0,
        "reason": "done",
        **changes,
    }
    return build_manifest(**arguments)


def put_artifact(store: Store, instance: str, name: str, data: bytes) -> Artifact:
    store.put_once(artifact_key("r1", instance, name), data)
    return Artifact(name, len(data), hashlib.sha256(data).hexdigest())


def unpacked(store: Store, bundle: Bundle, folder: Path) -> Path:
    """What an operator does, without our software."""
    (folder / "evidence.zip").write_bytes(store.get(bundle.key, 500 * MIB))
    out = folder / "out"
    subprocess.run(["unzip", "-q", str(folder / "evidence.zip"), "-d", str(out)], check=True)
    checked = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=out, check=True, capture_output=True, text=True)
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert {line.removesuffix(": OK") for line in checked.stdout.splitlines()} == files - {"SHA256SUMS"}
    return out


def test_bundle_can_be_checked_without_us(store: Store, instance: str, archived: Archived, tmp_path: Path) -> None:
    feeds = {"bench": [b"proof %d ok\n" % n for n in range(2000)], "gpu": [os.urandom(300_000)], "setup": []}
    streams = {name: archived(name, data) for name, data in feeds.items()}
    artifacts = [put_artifact(store, instance, name, name.encode() * 99) for name in ("proofs.json", "a/b/t.json")]
    manifest = manifest_of(instance, streams, artifacts)
    assert manifest["status"] == "complete"
    bundle = write_bundle(store, manifest, streams)
    assert bundle.problems == ()
    assert bundle.key == bundle_key("r1", instance)
    data = store.get(bundle.key, 500 * MIB)
    assert (bundle.bytes, bundle.sha256) == (len(data), hashlib.sha256(data).hexdigest())

    out = unpacked(store, bundle, tmp_path)
    for name, parts in feeds.items():
        assert (out / "streams" / f"{name}.log").read_bytes() == b"".join(parts)
        lines = (out / "chunks" / f"{name}.jsonl").read_text().splitlines()
        assert [ChunkRecord.from_json(line) for line in lines] == streams[name]
        assert not (out / "streams" / f"{name}.gaps").exists()
    assert (out / "artifacts/a/b/t.json").read_bytes() == b"a/b/t.json" * 99
    assert load_manifest(store, "r1", instance) == manifest
    with zipfile.ZipFile(tmp_path / "evidence.zip") as archive:
        assert archive.testzip() is None
        assert {info.external_attr >> 16 for info in archive.infolist()} == {0o644}


def test_sealing_twice_is_harmless(store: Store, instance: str, archived: Archived) -> None:
    streams = {"bench": archived("bench", [b"x\n" * 5000] * 50)}
    manifest = manifest_of(instance, streams, [])
    first = write_bundle(store, manifest, streams)
    assert write_bundle(store, manifest, streams) == first
    with pytest.raises(ObjectConflict):
        write_bundle(store, manifest_of(instance, streams, [], reason="again"), streams)
    assert write_bundle(store, load_manifest(store, "r1", instance), streams) == first


def test_gaps_are_beside_the_log_not_in_it(store: Store, instance: str, archived: Archived, tmp_path: Path) -> None:
    lines = [b"%04d\n" % n for n in range(1, 2001)]
    whole = archived("bench", lines, step_ms=20)
    kept = [record for record in whole if record.seq not in (3, 4)]
    streams = {"bench": kept}
    manifest = manifest_of(instance, streams, [])
    bundle = write_bundle(store, manifest, streams)
    out = unpacked(store, bundle, tmp_path)
    at = whole[3].first_line
    after = whole[5].first_line
    log = (out / "streams/bench.log").read_bytes()
    assert log == b"".join(lines[: at - 1] + lines[after - 1 :])
    assert (out / "streams/bench.gaps").read_text() == (
        f"after byte {5 * (at - 1)} of what was received: lines {at}-{after - 1} missing (chunks 3 to 4)\n"
    )
    assert bundle.problems == ()


def test_what_the_store_lost_is_told(store: Store, instance: str, archived: Archived, tmp_path: Path) -> None:
    streams = {"bench": archived("bench", [b"%04d\n" % n for n in range(1, 2001)], step_ms=20)}
    artifacts = [put_artifact(store, instance, name, b"data") for name in ("kept", "lost", "altered")]
    manifest = manifest_of(instance, streams, artifacts)
    store.delete(chunk_key("r1", instance, "bench", 2))
    store.delete(artifact_key("r1", instance, "lost"))
    store.put(artifact_key("r1", instance, "altered"), b"DATA")
    bundle = write_bundle(store, manifest, streams)
    stream, altered, lost = bundle.problems
    assert "chunk 2 is lost" in stream
    assert "altered" in altered
    assert "lost" in lost
    out = unpacked(store, bundle, tmp_path)
    assert "lost from the store" in (out / "streams/bench.gaps").read_text()


def test_store_down_leaves_no_bundle(store: Store, instance: str, archived: Archived) -> None:
    streams = {"bench": archived("bench", [b"x\n"])}
    with pytest.raises(StoreUnavailable):
        write_bundle(Store(NOWHERE), manifest_of(instance, streams, []), streams)
    with pytest.raises(NoSuchObject):
        load_manifest(store, "r1", instance)


def test_memory_and_time_of_a_big_bundle(store: Store, instance: str, archived: Archived) -> None:
    block = random.Random(7).randbytes(15_000).hex().encode() + b"\n"
    streams = {"bench": archived("bench", [block] * 700)}
    manifest = manifest_of(instance, streams, [])
    tracemalloc.start()
    begin = time.monotonic()
    bundle = write_bundle(store, manifest, streams)
    took = time.monotonic() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    raw = sum(record.raw_bytes for record in streams["bench"])
    chunks = len(streams["bench"])
    print(f"bundle of {raw / 1e6:.0f} MB, {chunks} chunks: {took:.1f} s traced, peak {peak / MIB:.0f} MiB")
    assert bundle.problems == ()
    assert peak < 32 * MIB
