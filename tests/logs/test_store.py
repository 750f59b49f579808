from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.server
import io
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logs.errors import NoSuchObject, ObjectConflict, StoreError, StoreRefused, StoreUnavailable, TooLarge
from logs.store import S3Config, Store
from tests.fakes.s3 import S3Server

NOWHERE = S3Config("http://127.0.0.1:1", "bucket", "us-east-1", "key", "secret")


def test_put_once(store: Store, instance: str) -> None:
    key = f"{instance}/x"
    assert store.put_once(key, b"hello") is True
    assert store.put_once(key, b"hello") is False
    assert store.put_once(key, io.BytesIO(b"hello")) is False
    for other in (b"", b"hellO", b"hello ", io.BytesIO(b"hellO")):
        with pytest.raises(ObjectConflict):
            store.put_once(key, other)
    assert store.get(key, 5) == b"hello"


def test_put_once_compares_bytes_that_others_wrote(store: Store, instance: str) -> None:
    key = f"{instance}/x"
    store.client.put_object(**store.where(key), Body=b"hello")
    assert store.head(key).sha256 == ""
    assert store.put_once(key, b"hello") is False
    with pytest.raises(ObjectConflict):
        store.put_once(key, b"hellO")


def test_put_once_of_a_file(store: Store, instance: str, tmp_path: Path) -> None:
    data = os.urandom(20_000_000)
    (tmp_path / "f").write_bytes(data)
    with (tmp_path / "f").open("rb") as file:
        file.seek(1000)  # where the file stands does not matter
        assert store.put_once(f"{instance}/f", file) is True
        assert store.put_once(f"{instance}/f", file) is False
    assert store.get(f"{instance}/f", len(data)) == data


def test_one_of_many_writers_wins(store: Store, instance: str) -> None:
    def write(n: int) -> str:
        try:
            return "new" if store.put_once(f"{instance}/x", b"%d" % (n % 2)) else "same"
        except ObjectConflict:
            return "conflict"

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(write, range(32)))
    assert results.count("new") == 1
    assert results.count("same") == 15
    assert results.count("conflict") == 16


def test_put_replaces(store: Store, instance: str) -> None:
    store.put(f"{instance}/x", b"one")
    store.put(f"{instance}/x", io.BytesIO(b"three"))
    info = store.head(f"{instance}/x")
    assert (info.bytes, info.sha256) == (5, hashlib.sha256(b"three").hexdigest())


def test_get_list_delete(store: Store, instance: str) -> None:
    for name in ("b", "a/1", "a/2"):
        store.put(f"{instance}/{name}", name.encode())
    assert [info.key for info in store.list(f"{instance}/")] == [f"{instance}/{n}" for n in ("a/1", "a/2", "b")]
    assert list(store.list(f"{instance}/none")) == []
    with pytest.raises(TooLarge):
        store.get(f"{instance}/a/1", 2)
    store.delete(f"{instance}/b")
    store.delete(f"{instance}/b")
    for call in (store.head, lambda key: store.get(key, 9), lambda key: list(store.iter_chunks(key)), store.open_range):
        with pytest.raises(NoSuchObject):
            call(f"{instance}/b")


def test_lists_more_than_a_page(store: Store, instance: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: store.put(f"{instance}/{n:05d}", b""), range(1010)))
    assert [info.key[-5:] for info in store.list(f"{instance}/")] == [f"{n:05d}" for n in range(1010)]


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 4, b"3456"),
        (0, 1, b"0"),
        (8, 100, b"89"),
        (10, None, b""),
        (10, 5, b""),
        (99, 1, b""),
        (3, 0, b""),
    ],
)
def test_ranges(store: Store, instance: str, start: int, length: int | None, expected: bytes) -> None:
    store.put(f"{instance}/x", b"0123456789")
    opened = store.open_range(f"{instance}/x", start, length)
    assert (opened.bytes, opened.total_bytes) == (len(expected), 10)
    assert b"".join(opened) == expected


def test_empty_object(store: Store, instance: str) -> None:
    assert store.put_once(f"{instance}/x", b"") is True
    assert store.get(f"{instance}/x", 0) == b""
    assert store.open_range(f"{instance}/x", 0, 5).bytes == 0


def test_big_objects_come_in_pieces(store: Store, instance: str) -> None:
    data = os.urandom(3_000_000)
    store.put(f"{instance}/x", data)
    pieces = list(store.iter_chunks(f"{instance}/x"))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= 256 * 1024


def test_ensure_bucket(s3_config: S3Config) -> None:
    other = Store(dataclasses.replace(s3_config, bucket="another-bucket"))
    assert other.ensure_bucket() is True
    assert other.ensure_bucket() is False
    assert other.put_once("x", b"") is True


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"secret_access_key": "wrong"}, "SECRET_ACCESS_KEY"),
        ({"access_key_id": "nobody"}, "ACCESS_KEY_ID"),
        ({"bucket": "no-such-bucket"}, "S3_BUCKET"),
        ({"endpoint": "nonsense"}, "PROVEFLEET_S3_"),
    ],
)
def test_refusals_say_what_to_do(s3_config: S3Config, change: dict[str, str], says: str) -> None:
    refused = Store(dataclasses.replace(s3_config, **change))
    for call in (
        lambda: refused.get("x", 1),
        lambda: refused.put("x", b""),
        lambda: refused.put_once("x", b""),
        lambda: list(refused.list("")),
    ):
        with pytest.raises(StoreRefused, match=says):
            call()


def test_secrets_are_not_in_the_repr(s3_config: S3Config) -> None:
    assert s3_config.secret_access_key not in repr(s3_config)


@contextlib.contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[Store]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Store(dataclasses.replace(NOWHERE, endpoint=f"http://127.0.0.1:{server.server_port}"))
    finally:
        server.shutdown()
        server.server_close()


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers everything with one status."""

    protocol_version = "HTTP/1.1"  # boto3 waits a second for the 100 that 1.0 does not have
    status = 503
    body = b""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

    def log_message(self, *_: object) -> None:
        pass


def all_calls_raise(store: Store, kind: type[StoreError]) -> None:
    for call in (
        lambda: store.get("x", 1),
        lambda: store.put("x", b"y"),
        lambda: store.put_once("x", b"y"),
        lambda: store.head("x"),
        lambda: list(store.list("")),
        lambda: store.delete("x"),
        lambda: store.open_range("x", 1, 1),
        store.ensure_bucket,
    ):
        with pytest.raises(kind):
            call()


def test_connection_refused_is_unavailable_and_quick() -> None:
    begin = time.monotonic()
    all_calls_raise(Store(NOWHERE), StoreUnavailable)
    assert time.monotonic() - begin < 25


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_busy_server_is_unavailable(status: int) -> None:
    handler = type("Busy", (Answering,), {"status": status, "body": b"<html>try later</html>"})
    with serving(handler) as busy, pytest.raises(StoreUnavailable):
        busy.put_once("x", b"y")


def test_every_call_maps_a_503() -> None:
    with serving(Answering) as busy:
        all_calls_raise(busy, StoreUnavailable)


def test_server_that_hangs_up_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        store = Store(dataclasses.replace(NOWHERE, endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}"))
        with pytest.raises(StoreUnavailable):
            store.get("x", 1)


def test_body_that_breaks_off_is_unavailable() -> None:
    class Short(Answering):
        protocol_version = "HTTP/1.0"  # so that the end of the answer is the end of the connection

        def answer(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"only this")

        do_GET = answer

    with serving(Short) as short, pytest.raises(StoreUnavailable):
        short.get("x", 1000)


def test_store_without_conditional_puts() -> None:
    held: dict[str, bytes] = {}

    class Old(Answering):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if "If-None-Match" in self.headers:
                return self.end(501)
            held[self.path] = body
            return self.end(200)

        def do_HEAD(self) -> None:
            self.end(200 if self.path in held else 404, held.get(self.path, b""))

        def do_GET(self) -> None:
            self.end(200, held[self.path])

        def end(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", "Mon, 30 Nov 2026 10:00:00 GMT")
            self.end_headers()
            self.wfile.write(body if self.command == "GET" else b"")

    with serving(Old) as old:
        assert old.put_once("x", b"hello") is True
        assert old.put_once("x", b"hello") is False
        with pytest.raises(ObjectConflict):
            old.put_once("x", b"hellO")
        assert held == {"/bucket/x": b"hello"}


def test_objects_survive_a_killed_server(tmp_path: Path) -> None:
    server = S3Server(tmp_path / "s3")
    server.start()
    try:
        store = Store(server.config)
        store.ensure_bucket()
        for n in range(30):
            store.put_once(f"runs/{n}", b"%d" % n)
        server.kill()
        with pytest.raises(StoreUnavailable):
            store.get("runs/0", 10)
        server.start()
        assert [store.get(f"runs/{n}", 10) for n in range(30)] == [b"%d" % n for n in range(30)]
        assert store.put_once("runs/0", b"0") is False
    finally:
        server.kill()
