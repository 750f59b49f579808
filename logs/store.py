"""The object store: one bucket of an S3-compatible server, path-style, short timeouts.

`Store` is thread-safe and makes its boto3 client on first use. Every method raises the
errors of `logs.errors` and nothing else: `StoreUnavailable`, `StoreRefused`, and where
named `NoSuchObject`, `ObjectConflict`, `TooLarge`.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO

from logs.errors import (
    NoSuchObject,
    NotOffered,
    ObjectConflict,
    OutOfRange,
    StoreUnavailable,
    TooLarge,
    translated,
)

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 15
ATTEMPTS = 2
MAX_CONNECTIONS = 32
READ_BYTES = 256 * 1024
_SHA256_META = "sha256"


@dataclass(frozen=True)
class S3Config:
    """Where the bucket is. `public_endpoint`: how rented machines and browsers reach the same
    server; empty when they reach it as we do.
    """

    endpoint: str
    bucket: str
    region: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    public_endpoint: str = ""


@dataclass(frozen=True)
class ObjectInfo:
    """What the store says about an object. `sha256` only if we wrote it with `put`/`put_once`."""

    key: str
    bytes: int
    modified: datetime
    sha256: str = ""


class OpenedObject:
    """A stretch of an object on its way: `bytes` long, of an object of `total_bytes`. `skip`: bytes that come before
    it, from a server that does not know Range.

    Iterate once; `close()` when stopping early. Raises `StoreUnavailable` when it breaks off.
    """

    def __init__(self, key: str, body: Any, length: int, total_bytes: int, skip: int = 0) -> None:
        self.bytes = length
        self.total_bytes = total_bytes
        self._key = key
        self._body = body
        self._skip = skip

    def __iter__(self) -> Iterator[bytes]:
        skip, left = self._skip, self.bytes
        try:
            while left:
                with translated("read", self._key):
                    data = self._body.read(min(READ_BYTES, skip or left))
                if not data:
                    raise StoreUnavailable(f"can't read {self._key}: it broke off {left} bytes early")
                if skip:
                    skip -= len(data)
                    continue
                left -= len(data)
                yield data
        finally:
            self.close()

    def close(self) -> None:
        """Gives the connection up; harmless when called twice."""
        self._body.close()


class Store:
    """One bucket. See the module's docstring for errors."""

    def __init__(self, config: S3Config) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}
        # Set to False by the first "not implemented" that a conditional put gets.
        self._conditional = True

    @property
    def client(self) -> Any:
        """The boto3 client, for `logs.multipart` and `logs.presign`."""
        return self.client_at(self.config.endpoint)

    def client_at(self, endpoint: str) -> Any:
        """A client of the same account that speaks to `endpoint` (a presigned URL names its host)."""
        with self._lock:
            if endpoint not in self._clients:
                with translated("set up", endpoint):
                    self._clients[endpoint] = _make_client(self.config, endpoint)
            return self._clients[endpoint]

    def ensure_bucket(self) -> bool:
        """Makes the bucket if it is missing; True if it did."""
        try:
            with translated("look at bucket", self.config.bucket):
                self.client.head_bucket(Bucket=self.config.bucket)
            return False
        except NoSuchObject:
            with translated("create bucket", self.config.bucket):
                self.client.create_bucket(Bucket=self.config.bucket)
            return True

    def put_once(self, key: str, data: bytes | BinaryIO) -> bool:
        """Writes an object that is never changed again. True if written now, False if the
        same bytes are there already (also when an earlier try of ours got through unheard).

        `data`: bytes, or a seekable binary file. Raises `ObjectConflict` if other bytes are there.
        """
        body, length, digest = _measured(data)

        def write(**condition: str) -> None:
            self._write(key, body, length, digest, **condition)

        for _ in range(3):
            try:
                self.write_absent(key, write)
                return True
            except ObjectConflict:
                pass
            try:
                if self.holds(key, length, digest):
                    return False
            except NoSuchObject:
                continue  # deleted between the two calls, or a concurrent put that failed (AWS: 409)
            raise ObjectConflict(f"can't write {key}: another object is there")
        raise StoreUnavailable(f"can't write {key}: it comes and goes; try again later")

    def put(self, key: str, data: bytes | BinaryIO) -> None:
        """Writes or replaces an object. `data`: bytes, or a seekable binary file."""
        body, length, digest = _measured(data)
        with translated("write", key):
            self._write(key, body, length, digest)

    def get(self, key: str, max_bytes: int) -> bytes:
        """The whole object. Raises `NoSuchObject`; `TooLarge` before reading more than `max_bytes`."""
        opened = self.open_range(key)
        if opened.bytes > max_bytes:
            opened.close()
            raise TooLarge(f"{key} has {opened.bytes} bytes, over {max_bytes}")
        return b"".join(opened)

    def open_range(self, key: str, start: int = 0, length: int | None = None) -> OpenedObject:
        """Bytes from `start`, `length` of them or up to the end. Raises `NoSuchObject`.

        A stretch that reaches past the end is cut there; one that starts there is empty.
        """
        if not start and length is None:
            with translated("read", key):
                reply = self.client.get_object(**self.where(key))
            return OpenedObject(key, reply["Body"], int(reply["ContentLength"]), int(reply["ContentLength"]))
        # The size first: a Range past the end is an error that servers word differently.
        total = self.head(key).bytes
        end = total if length is None else min(start + length, total)
        if start >= end:
            return OpenedObject(key, io.BytesIO(), 0, total)
        return self._stretch(key, start, end - start)

    def get_stretch(self, key: str, start: int, length: int) -> bytes:
        """Exactly these bytes, by one request. Raises `NoSuchObject`; `OutOfRange` where it ends earlier."""
        return b"".join(self._stretch(key, start, length))

    def _stretch(self, key: str, start: int, length: int) -> OpenedObject:
        with translated("read", key):
            reply = self.client.get_object(**self.where(key), Range=f"bytes={start}-{start + length - 1}")
        come, ranged = int(reply["ContentLength"]), reply.get("ContentRange")
        # Without Content-Range the whole object comes: what lies before the stretch is read and thrown away.
        skip = 0 if ranged else start
        if come < skip + length:
            reply["Body"].close()
            raise OutOfRange(f"{key} ends before byte {start + length}")
        total = int(ranged.rpartition("/")[2]) if ranged else come
        return OpenedObject(key, reply["Body"], length, total, skip)

    def iter_chunks(self, key: str) -> Iterator[bytes]:
        """The whole object in pieces of at most 256 KiB. Raises `NoSuchObject` at the first."""
        yield from self.open_range(key)

    def head(self, key: str) -> ObjectInfo:
        """Size and age. Raises `NoSuchObject`."""
        with translated("look at", key):
            reply = self.client.head_object(**self.where(key))
        digest = reply.get("Metadata", {}).get(_SHA256_META, "")
        return ObjectInfo(key, int(reply["ContentLength"]), reply["LastModified"], digest)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object whose key starts with `prefix`, by key."""
        with translated("list", prefix):
            pages = self.client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.config.bucket, Prefix=prefix):
                for entry in page.get("Contents", ()):
                    yield ObjectInfo(entry["Key"], int(entry["Size"]), entry["LastModified"])

    def delete(self, key: str) -> None:
        """Removes an object; no error if there is none."""
        with translated("delete", key):
            self.client.delete_object(**self.where(key))

    def _write(self, key: str, body: bytes | BinaryIO, length: int, digest: str, **condition: str) -> None:
        if not isinstance(body, bytes):
            body.seek(0)
        self.client.put_object(
            **self.where(key),
            Body=body,
            ContentLength=length,
            Metadata={_SHA256_META: digest},
            **condition,
        )

    def where(self, key: str) -> dict[str, str]:
        """The two arguments that every boto3 call on an object takes."""
        return {"Bucket": self.config.bucket, "Key": key}

    def write_absent(self, key: str, write: Callable[..., Any]) -> None:
        """Calls `write(IfNoneMatch="*")`; where the server has no such thing, looks first and
        calls `write()` (not safe against a race; one writer a key is the rule anyway).
        Raises `ObjectConflict` if an object is there, whatever its bytes.
        """
        if self._conditional:
            try:
                with translated("write", key):
                    write(IfNoneMatch="*")
                return
            except NotOffered:
                self._conditional = False
        try:
            self.head(key)
        except NoSuchObject:
            with translated("write", key):
                write()
            return
        raise ObjectConflict(f"can't write {key}: another object is there")

    def holds(self, key: str, length: int, digest: str) -> bool:
        """True if the object has this length and SHA-256; reads it when we didn't note the latter.
        Raises `NoSuchObject`.
        """
        info = self.head(key)
        if info.bytes != length:
            return False
        if info.sha256:
            return info.sha256 == digest
        actual = hashlib.sha256()
        for piece in self.iter_chunks(key):
            actual.update(piece)
        return actual.hexdigest() == digest


def _measured(data: bytes | BinaryIO) -> tuple[bytes | BinaryIO, int, str]:
    if isinstance(data, bytes):
        return data, len(data), hashlib.sha256(data).hexdigest()
    data.seek(0)
    digest = hashlib.sha256()
    length = 0
    while piece := data.read(READ_BYTES):
        digest.update(piece)
        length += len(piece)
    return data, length, digest.hexdigest()


def _make_client(config: S3Config, endpoint: str) -> Any:
    import boto3  # lazy: it costs 0.3 s and 30 MB
    from botocore.config import Config

    session = boto3.session.Session(
        aws_access_key_id=config.access_key_id,
        aws_secret_access_key=config.secret_access_key,
        region_name=config.region,
    )
    return session.client(
        "s3",
        endpoint_url=endpoint,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
            max_pool_connections=MAX_CONNECTIONS,
            # Newer boto3 adds CRC trailers by default, which many S3 servers don't know.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
