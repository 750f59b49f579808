"""What of the live view and of the way into the archive is measured: 200 who watch, and a machine that dies."""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jobs.context import Context
from jobs.domain import archive
from jobs.domain.db import writing
from jobs.domain.models import Chunk, Instance
from logs.reader import StreamReader
from logs.store import S3Config
from logs.wire import ChunkRecord
from tests.bench.talker import STREAM
from tests.bench.watchers import WRITTEN, Watchers
from tests.fakes.valkey import running_valkey
from tests.web.seed import Fleet
from tests.web.site import connect, seeded, served, settings_of

Tell = Callable[[str, str, str], None]

VIEWERS = 200
LINES_PER_S = 20.0
WATCHED_S = 20.0
KILLED = ("loading", "fetching", "ready", "proving", "serving")  # one machine each


@contextlib.contextmanager
def controller(folder: Path, s3: S3Config) -> Iterator[tuple[Context, Fleet, str, str]]:
    """A seeded controller: its context, its fleet, the site's address and the machine app's."""
    (folder / "valkey").mkdir(parents=True)
    with running_valkey(folder / "valkey") as redis:
        settings = settings_of(folder, s3, redis.url)
        context, fleet = seeded(settings)
        with served(settings) as site, served(settings, "machine", 32) as machine:
            yield context, fleet, site, machine


def token_of(context: Context, instance_id: str) -> str:
    token = secrets.token_urlsafe(24)
    with writing(context.sessions) as session:
        instance = session.get(Instance, instance_id)
        assert instance is not None
        instance.token_sha256 = hashlib.sha256(token.encode()).hexdigest()
    return token


def talker(folder: Path, address: str, token: str, seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.bench.talker", folder, address, token, LINES_PER_S, seconds]
    return subprocess.Popen([str(part) for part in command])


def resident_mib(port: str) -> float:
    """Of the gunicorn worker that listens at `port`: the one with the most memory of those that name it."""
    sizes = [0]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f":{port}".encode() in (process / "cmdline").read_bytes():
                told = re.search(r"VmRSS:\s+(\d+)", (process / "status").read_text())
                sizes.append(int(told[1]) if told else 0)
    return max(sizes) / 1024


def viewers(folder: Path, s3: S3Config, tell: Tell) -> None:
    with controller(folder / "viewers", s3) as (context, fleet, site, machine):
        instance = fleet.instances["proving"]
        token = token_of(context, instance)
        connection, cookie = connect(site)
        connection.close()
        port = site.rpartition(":")[2]
        before = resident_mib(port)
        with Watchers(site, f"/instances/{instance}/stream", cookie, VIEWERS) as watching:
            opened = watching.wait_for("open", 60)
            child = talker(folder / "viewers-spool", machine, token, WATCHED_S)
            count = int(LINES_PER_S * WATCHED_S)
            watching.wait_for(str(count), WATCHED_S + 60)
            child.wait(60)
            after = resident_mib(port)
    refused = sum(b" 200 " not in w.status for w in watching.all)
    delays = sorted(d for w in watching.all for d in w.delays_s)
    lost = sum(len(set(range(1, count + 1)) - set(w.lines)) for w in watching.all)
    doubled = sum(len(w.lines) - len(set(w.lines)) for w in watching.all)
    unordered = sum(w.lines != sorted(w.lines) for w in watching.all)
    p95 = delays[int(len(delays) * 0.95)]
    tell(
        f"line to browser, {VIEWERS} viewers, {LINES_PER_S:.0f} lines/s",
        f"p50 {statistics.median(delays):.2f} s, p95 {p95:.2f}, max {delays[-1]:.2f}",
        "p95 < 1 s",
    )
    tell(
        f"  of {count * VIEWERS} lines{'' if opened else ' (not all were opened in 60 s)'}",
        f"{lost} lost, {doubled} doubled, {unordered + refused} viewers out of order or refused",
        "0",
    )
    tell("  the site's memory before, and with all of them", f"{before:.0f} MiB, {after:.0f} MiB", "")


def loss(folder: Path, s3: S3Config, tell: Tell) -> None:
    """The shipper is killed and its spool deleted: how much of what it wrote never reached the archive."""
    lost_ms = []
    with controller(folder / "loss", s3) as (context, fleet, _, machine):
        for number, state in enumerate(KILLED):
            instance = fleet.instances[state]
            token = token_of(context, instance)
            spool = folder / f"loss-{number}"
            child = talker(spool, machine, token, 3600)
            time.sleep(8.0 + 0.37 * number)
            killed_ns = time.time_ns()
            child.kill()
            child.wait()
            shutil.rmtree(spool)
            time.sleep(2.0)  # what was on its way is in, or isn't
            lost_ms.append((killed_ns - last_written_ns(context, instance)) / 1e6)
    tell(
        f"lines lost on SIGKILL of a machine, {len(KILLED)} times",
        f"those of the last {statistics.median(lost_ms) / 1e3:.2f} s, worst {max(lost_ms) / 1e3:.2f}",
        "< 2 s",
    )


def last_written_ns(context: Context, instance_id: str) -> int:
    """When the newest line in the archive was written, in ns since the epoch."""
    with context.sessions() as session:
        mine = session.query(*archive.RECORD).where(Chunk.instance_id == instance_id, Chunk.stream == STREAM)
        records = [ChunkRecord(*row) for row in mine.order_by(Chunk.seq)]
        places = archive.places_of(session, instance_id)
        instance = session.get(Instance, instance_id)
        assert instance is not None
    reader = StreamReader(context.store, instance.run_id or "none", instance_id, STREAM, records, places[STREAM])
    lines = reader.lines(max(1, records[-1].next_line - 5), 10)
    return max(int(found[2]) for line in lines if (found := WRITTEN.match(line.text)))
