from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from logs import tail
from logs.tail import TailFrame, TailUnavailable, publish, read_since
from logs.wire import TAIL_FRAME_BYTES, WireError

Valkey = tuple[Any, "subprocess.Popen[bytes]", Path]


def test_frames_come_in_order_and_once(valkey: Valkey, instance: str) -> None:
    client = valkey[0]
    assert read_since(client, instance) == ([], tail.START)
    publish(client, instance, "bench", 1, b"one\n")
    publish(client, instance, "gpu", 7, b"\xff\x00")
    frames, cursor = read_since(client, instance)
    assert frames == [TailFrame("bench", 1, b"one\n"), TailFrame("gpu", 7, b"\xff\x00")]
    assert read_since(client, instance, cursor) == ([], cursor)
    publish(client, instance, "bench", 2, b"two\n")
    assert read_since(client, instance, cursor)[0] == [TailFrame("bench", 2, b"two\n")]


def test_bounded_and_forgotten(valkey: Valkey, instance: str) -> None:
    client = valkey[0]
    for n in range(tail.MAX_FRAMES + 50):
        publish(client, instance, "bench", n + 1, b"x" * TAIL_FRAME_BYTES)
    frames, _ = read_since(client, instance)
    assert [frame.first_line for frame in frames] == list(range(51, tail.MAX_FRAMES + 51))
    (key,) = client.keys(f"*{instance}*")
    assert 0 < client.ttl(key) <= tail.TTL_S


def test_waits_a_little_for_the_first_frame(valkey: Valkey, instance: str) -> None:
    begin = time.monotonic()
    assert read_since(valkey[0], instance, wait_ms=60_000)[0] == []
    assert 0.3 < time.monotonic() - begin < 10


def test_survives_a_flush(valkey: Valkey, instance: str) -> None:
    client = valkey[0]
    publish(client, instance, "bench", 1, b"one")
    cursor = read_since(client, instance)[1]
    client.flushall()
    assert read_since(client, instance, cursor) == ([], cursor)
    time.sleep(0.002)  # ids are the server's milliseconds
    publish(client, instance, "bench", 2, b"two")
    assert [frame.data for frame in read_since(client, instance, cursor)[0]] == [b"two"]


@pytest.mark.parametrize("cursor", ["", "$", "x", "1", "1-", "-1", "1-1 2-2", "1" * 30 + "-1", "0-0\n"])
def test_bad_cursors(valkey: Valkey, instance: str, cursor: str) -> None:
    with pytest.raises(WireError):
        read_since(valkey[0], instance, cursor)


@pytest.mark.parametrize(
    ("stream", "line", "data"),
    [("Bench", 1, b"x"), ("bench", 0, b"x"), ("bench", 1, b""), ("bench", 1, b"x" * (TAIL_FRAME_BYTES + 1))],
)
def test_bad_frames(valkey: Valkey, instance: str, stream: str, line: int, data: bytes) -> None:
    with pytest.raises(WireError):
        publish(valkey[0], instance, stream, line, data)


def test_redis_away(tmp_path: Path) -> None:
    client = tail.connect(f"unix://{tmp_path}/none.sock")
    with pytest.raises(TailUnavailable):
        publish(client, "i", "bench", 1, b"x")
    with pytest.raises(TailUnavailable):
        read_since(client, "i")


def test_redis_hangs_for_a_second_at_most(valkey: Valkey, instance: str) -> None:
    client, process, _ = valkey
    os.kill(process.pid, signal.SIGSTOP)
    try:
        for call in (lambda: publish(client, instance, "bench", 1, b"x"), lambda: read_since(client, instance)):
            begin = time.monotonic()
            with pytest.raises(TailUnavailable):
                call()
            assert time.monotonic() - begin < 10
    finally:
        os.kill(process.pid, signal.SIGCONT)
    publish(client, instance, "bench", 1, b"x")


def test_a_foreign_key_does_no_harm(valkey: Valkey, instance: str) -> None:
    client = valkey[0]
    client.set(tail._key(instance), "not a stream")
    with pytest.raises(TailUnavailable):
        read_since(client, instance)
