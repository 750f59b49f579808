from __future__ import annotations

import hashlib
import io
import os
import tracemalloc
import uuid
from typing import Any

import pytest

from logs import multipart
from logs.errors import NoSuchObject, ObjectConflict, StoreUnavailable, TooLarge
from logs.multipart import PART_BYTES, PartWriter, copy, upload_stream
from logs.store import Store
from logs.wire import MIB, WireError
from tests.logs.test_store import NOWHERE


class Source(io.RawIOBase):
    """`size` bytes, none of them kept; may break at the end."""

    def __init__(self, size: int, error: Exception | None = None) -> None:
        self.left = size
        self.error = error
        self.block = os.urandom(MIB)

    def read(self, size: int = -1) -> bytes:
        if not self.left and self.error:
            raise self.error
        taken = self.block[: min(size, self.left, MIB - 7)]
        self.left -= len(taken)
        return taken


def unfinished(store: Store) -> list[Any]:
    return store.client.list_multipart_uploads(Bucket=store.config.bucket).get("Uploads", [])


def nothing_left(store: Store) -> bool:
    return not unfinished(store) and not list(store.list("uploads/"))


@pytest.mark.parametrize("size", [1, 100_000, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 20_000_000])
def test_uploads_are_named_by_content(store: Store, size: int) -> None:
    data = os.urandom(size)
    for _ in range(2):  # again: the same object
        sha256, length = upload_stream(store, io.BytesIO(data), size, uuid.uuid4().hex)
        assert (sha256, length) == (hashlib.sha256(data).hexdigest(), size)
        assert store.get(f"inputs/{sha256}", size) == data
        assert nothing_left(store)


def test_memory_is_bounded(store: Store) -> None:
    upload_stream(store, Source(MIB), 2 * MIB, uuid.uuid4().hex)
    tracemalloc.start()
    upload_stream(store, Source(64 * MIB), 200 * MIB, uuid.uuid4().hex)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"upload of 64 MiB: peak {peak / MIB:.0f} MiB")
    assert peak < 4 * PART_BYTES


@pytest.mark.parametrize("limit", [5, PART_BYTES, 3 * PART_BYTES - 1])
def test_too_large_leaves_nothing(store: Store, limit: int) -> None:
    with pytest.raises(TooLarge):
        upload_stream(store, Source(3 * PART_BYTES), limit, uuid.uuid4().hex)
    assert nothing_left(store)


def test_broken_source_leaves_nothing(store: Store) -> None:
    with pytest.raises(ConnectionResetError):
        upload_stream(store, Source(2 * PART_BYTES + 5, ConnectionResetError()), 2**40, uuid.uuid4().hex)
    assert nothing_left(store)


def test_empty_and_bad_tokens_are_refused(store: Store) -> None:
    with pytest.raises(WireError, match="empty"):
        upload_stream(store, io.BytesIO(), 10, uuid.uuid4().hex)
    with pytest.raises(WireError, match="token"):
        upload_stream(store, io.BytesIO(b"x"), 10, "../x")
    assert nothing_left(store)


def test_store_down() -> None:
    with pytest.raises(StoreUnavailable):
        upload_stream(Store(NOWHERE), Source(2 * PART_BYTES), 2**40, "t")


@pytest.mark.parametrize("size", [10, 2 * PART_BYTES + 10])
def test_written_once(store: Store, instance: str, size: int) -> None:
    def write(data: bytes) -> PartWriter:
        with PartWriter(store, f"{instance}/x", 2**40, once=True) as out:
            out.write(data)
        return out

    data = os.urandom(size)
    out = write(data)
    assert (out.bytes, out.sha256) == (size, hashlib.sha256(data).hexdigest())
    write(data)
    for other in (data[:-1] + bytes([data[-1] ^ 1]), data + b"x", b"x"):
        with pytest.raises(ObjectConflict):
            write(other)
    assert store.get(f"{instance}/x", size) == data
    assert not unfinished(store)


def test_nothing_appears_before_the_end(store: Store, instance: str) -> None:
    class Stop(Exception):
        pass

    def stop_half_way() -> None:
        with PartWriter(store, f"{instance}/x", 2**40, once=False) as out:
            out.write(bytes(PART_BYTES * 2))
            raise Stop

    with pytest.raises(Stop):
        stop_half_way()
    with pytest.raises(NoSuchObject):
        store.head(f"{instance}/x")
    assert not unfinished(store)


def test_copy_in_pieces(store: Store, instance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "COPY_BYTES", 5 * MIB)
    data = os.urandom(17_000_000)
    store.put(f"{instance}/a", data)
    copy(store, f"{instance}/a", f"{instance}/b", len(data))
    assert store.get(f"{instance}/b", len(data)) == data
    with pytest.raises(NoSuchObject):
        copy(store, f"{instance}/none", f"{instance}/c", 20_000_000)
    assert not unfinished(store)
