"""`make bench-archive`: what the archive can take and how fast things are found in it, on a real S3 server and SQLite.

`PARTS="ingest loss viewers page search"` does some; `SIZE_MB=1000` is how much text is searched. Nothing here asserts:
the table is the result. The Go vast-manager takes 38 MB/s on one connection, into memory only (not measured here).
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpu.agent.client import Client
from jobs.context import Context
from jobs.domain.db import migrate, writing
from jobs.domain.models import Chunk, Instance
from jobs.domain.search_models import ChunkGrams
from jobs.log_search import Progress, Scope, search
from logs.chunks import ChunkCutter
from logs.grams import packed
from logs.levels import counts
from logs.query import parse
from logs.reader import StreamReader
from logs.store import S3Config
from logs.wire import CHUNK_RAW_BYTES, MAX_BATCH_CHUNKS, ChunkRecord, chunk_key
from tests.bench.live import loss, viewers
from tests.fakes.s3 import running_s3
from tests.web.bulk import many_runs
from tests.web.site import served, settings_of

SIZE_MB = int(os.environ.get("SIZE_MB", "1000"))
INGEST_MB = 128
RUNS = 200
SENTENCES = (
    "INFO cuzk partition {} synthesis done in {} ms, queue depth 3",
    "DEBUG msm window {} bucket {} of 4096, 412 Mpoints/s",
    "INFO harmonytask poller: nothing to do, machine {} of {}",
    "WARN rpc slow: {} ms for proof {}",
)
RARE = "CUDA_ERROR_ILLEGAL_ADDRESS_7f3a"


def tell(what: str, figure: str, target: str = "") -> None:
    print(f"{what:66} {figure:>40}   {target}", flush=True)


def text(rng: random.Random, size: int) -> bytes:
    """`size` bytes of log lines; one in many is an error."""
    lines, have = [], 0
    while have < size:
        line = f"2026-03-12T11:{rng.randrange(60):02}:{rng.randrange(60):02}.{rng.randrange(1000):03}Z "
        line += rng.choice(SENTENCES).format(rng.randrange(10**6), rng.getrandbits(24))
        if rng.random() < 0.001:
            line = f"2026-03-12 ERROR worker {rng.randrange(99)} lost its tunnel after {rng.randrange(999)} s"
        lines.append(line)
        have += len(line) + 1
    return ("\n".join(lines) + "\n").encode()[:size]


def chunks(data: bytes, stream: str) -> Iterator[tuple[ChunkRecord, bytes]]:
    cutter = ChunkCutter(stream)
    for at in range(0, len(data), CHUNK_RAW_BYTES):
        cutter.feed(data[at : at + CHUNK_RAW_BYTES], 1_796_000_000_000)
        while cutter.buffered >= CHUNK_RAW_BYTES:
            cut = cutter.cut(1_796_000_000_000)
            assert cut is not None
            yield cut
    while (cut := cutter.cut(1_796_000_000_000)) is not None:
        yield cut


class Bench:
    def __init__(self, folder: Path, s3: S3Config):
        self.folder, self.s3 = folder, s3
        self.settings = settings_of(folder, s3)
        migrate(self.settings)
        self.context = Context(self.settings)
        many_runs(self.context, RUNS)

    def live(self) -> tuple[str, str]:
        """(instance, its token): one that may ship."""
        token = secrets.token_urlsafe(24)
        with writing(self.context.sessions) as session:
            instance = session.query(Instance).where(Instance.state == "destroyed").order_by(Instance.id).first()
            assert instance is not None
            instance.state, instance.token_sha256 = "benchmarking", hashlib.sha256(token.encode()).hexdigest()
            return instance.id, token


def ingest(bench: Bench) -> None:
    """One connection, as the agent sends what waits: 64 chunks at once, acknowledged when in S3 and in SQL."""
    _, token = bench.live()
    cut = list(chunks(text(random.Random(1), INGEST_MB << 20), "bench"))
    raw, stored = sum(r.raw_bytes for r, _ in cut), sum(len(f) for _, f in cut)
    with served(bench.settings, "machine", 32) as address:
        client = Client(address, token)
        client.put_chunks("first", list(chunks(b"a process opens its connections at its first call\n" * 9000, "first")))
        begun = time.monotonic()
        for at in range(0, len(cut), MAX_BATCH_CHUNKS):
            client.put_chunks("bench", cut[at : at + MAX_BATCH_CHUNKS])
        took = time.monotonic() - begun
    begun = time.monotonic()
    for at in range(0, len(cut), MAX_BATCH_CHUNKS):
        bench.context.store.put_once(f"peer/{at}", b"".join(frame for _, frame in cut[at : at + MAX_BATCH_CHUNKS]))
    peer = time.monotonic() - begun
    tell(
        "ingest, one connection, durable",
        f"{raw / took / 1e6:.1f} MB/s raw, {stored / took / 1e6:.1f} stored",
        "38 MB/s",
    )
    tell(
        "  beside bare writes of the same chunks to the same S3",
        f"{raw / peer / 1e6:.1f} MB/s, ratio {peer / took:.2f}",
    )


def fill(bench: Bench, size: int) -> None:
    """`size` bytes of raw logs over all runs, by the same writes that ingest makes, without HTTP."""
    with bench.context.sessions() as session:
        pairs = [(i.run_id or "", i.id) for i in session.query(Instance).where(Instance.state == "destroyed")]
    rng = random.Random(7)
    each = size // len(pairs)
    store = bench.context.store
    with ThreadPoolExecutor(8) as pool:
        for number, (run, instance) in enumerate(pairs):
            data = text(rng, 1 << 20)
            data = (data * (each // len(data) + 1))[:each]
            if number == len(pairs) // 2:
                data = data[: each // 2] + f"\nthread panicked: {RARE}\n".encode() + data[each // 2 :]
            cut = list(chunks(data, "bench"))
            list(
                pool.map(lambda c, run=run, i=instance: store.put_once(chunk_key(run, i, "bench", c[0].seq), c[1]), cut)
            )  # type: ignore[misc]
            with writing(bench.context.sessions) as session:
                at = 0
                rows: list[dict[str, Any]] = []
                grams: list[dict[str, Any]] = []
                for record, frame in cut:
                    piece = data[max(at - 2, 0) : at + record.raw_bytes]
                    at += record.raw_bytes
                    key = {"instance_id": instance, "stream": "bench", "seq": record.seq}
                    rows.append({**record.to_dict(), **key, "stored_bytes": len(frame), "received_ms": 1})
                    edge = b"" if piece.endswith(b"\n") else piece[-2:]
                    warnings, errors = counts(piece)
                    grams.append({**key, "warnings": warnings, "errors": errors, "edge": edge, "bitmap": packed(piece)})
                session.bulk_insert_mappings(Chunk, rows)  # type: ignore[arg-type]
                session.bulk_insert_mappings(ChunkGrams, grams)  # type: ignore[arg-type]


QUERIES: dict[str, tuple[str, bool]] = {
    "a rare word": (RARE, False),
    "a part of a rare word": ("ILLEGAL_ADDRESS_7", False),
    "a common word (first 200 hits)": ("synthesis", False),
    "an absent word": ("no kernel image", False),
    "two words": ("worker tunnel", False),
    "regex with a literal": (r"panicked: CUDA_ERROR_\w+_7f", True),
    "regex of alternatives, rare": (r"ILLEGAL_ADDRESS|fallen off the bus", True),
}


def find(bench: Bench) -> None:
    begun = time.monotonic()
    fill(bench, SIZE_MB << 20)
    tell(f"{SIZE_MB} MB of raw logs of {RUNS} runs, written in", f"{time.monotonic() - begun:.0f} s")
    for name, (asked, regex) in QUERIES.items():
        took, progress = [], Progress()
        for _ in range(5):
            progress = Progress()
            begun = time.monotonic()
            with bench.context.sessions() as session:
                hits = search(
                    session, bench.context.store, parse(asked, regex=regex), Scope(),
                    clock_s=time.monotonic, deadline_s=30.0, limit=200, progress=progress,
                )  # fmt: skip
                for _ in hits:
                    pass
            took.append(time.monotonic() - begun)
        figure = f"{statistics.median(took):.2f} s, worst {max(took):.2f}; {progress.hits} hits"
        figure += f", {progress.read_bytes / 1e6:.0f} MB read"
        whole = progress.ended if progress.ended.startswith("stopped") else ""
        tell(f"search {SIZE_MB} MB: {name}", f"{figure}{', ' if whole else ''}{whole}", "< 5 s" if regex else "< 2 s")


def page(bench: Bench) -> None:
    """A page of 500 lines anywhere in a log of a million."""
    with bench.context.sessions() as session:
        run, instance = session.query(Instance.run_id, Instance.id).order_by(Instance.id.desc()).first() or ("", "")
    data = b"".join(
        b"2026-03-12T11:00:00Z INFO line %d of a million, with some words to make it a hundred bytes long, yes\n" % i
        for i in range(1_000_000)
    )
    cut = list(chunks(data, "million"))
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda c: bench.context.store.put_once(chunk_key(run or "none", instance, "million", c[0].seq), c[1]),
                cut,
            )
        )
    took = []
    rng = random.Random(3)
    for _ in range(40):
        begun = time.monotonic()
        reader = StreamReader(bench.context.store, run or "none", instance, "million", [record for record, _ in cut])
        assert len(reader.lines(rng.randrange(1, 999_000), 500)) == 500
        took.append(time.monotonic() - begun)
    tell(
        f"500 lines anywhere in 1,000,000 ({len(data) / 1e6:.0f} MB)",
        f"p50 {statistics.median(took) * 1e3:.0f} ms, p95 {sorted(took)[37] * 1e3:.0f} ms",
        "< 300 ms",
    )


PARTS: dict[str, Callable[[Bench], None]] = {
    "ingest": ingest,
    "loss": lambda bench: loss(bench.folder, bench.s3, tell),
    "viewers": lambda bench: viewers(bench.folder, bench.s3, tell),
    "page": page,
    "search": find,
}


def main(chosen: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="provefleet-bench-") as folder:
        (Path(folder) / "s3").mkdir()
        with running_s3(Path(folder) / "s3") as s3:
            bench = Bench(Path(folder), s3)
            for name, part in PARTS.items():
                if not chosen or name in chosen:
                    part(bench)


if __name__ == "__main__":
    main(sys.argv[1:])
