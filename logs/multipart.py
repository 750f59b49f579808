"""Objects too large for memory: written part by part, never visible half-written.

A `PartWriter` holds one part (8 MiB) and hashes as it goes. `upload_stream` takes an upload of
unknown content to `inputs/<sha256>`: first to a key of its own, then copied by the server.
A crash can leave an object under `uploads/` or unfinished parts; neither is ever read.
"""

from __future__ import annotations

import contextlib
import hashlib
from types import TracebackType
from typing import Any, BinaryIO, Self

from logs.errors import NoSuchObject, ObjectConflict, StoreError, TooLarge, translated
from logs.store import Store
from logs.wire import MIB, WireError, check_id, input_key

PART_BYTES = 8 * MIB
MAX_PARTS = 10_000
COPY_BYTES = 256 * MIB  # what a server copies well inside our read timeout


class PartWriter:
    """Writes one object: `with PartWriter(store, key, max_bytes) as out: out.write(data)`.

    The object appears when the block ends well; after any exception nothing is left.
    `once`: never replace. Then equal bytes under the key are success, and others raise
    `ObjectConflict` (from the end of the block). `write` raises `TooLarge`. Good enough a file
    for `zipfile` to write to.
    """

    def __init__(self, store: Store, key: str, max_bytes: int, *, once: bool) -> None:
        self.key = key
        self.bytes = 0
        self._store = store
        self._max_bytes = min(max_bytes, PART_BYTES * MAX_PARTS)
        self._once = once
        self._buffer = bytearray()
        self._digest = hashlib.sha256()
        self._upload_id = ""
        self._parts: list[dict[str, Any]] = []

    @property
    def sha256(self) -> str:
        """Of everything written so far, in hex."""
        return self._digest.hexdigest()

    def write(self, data: bytes) -> int:
        """Takes bytes; sends whole parts on. Raises `TooLarge`."""
        if self.bytes + len(data) > self._max_bytes:
            raise TooLarge(f"over {self._max_bytes} bytes")
        self._digest.update(data)
        self.bytes += len(data)
        view = memoryview(data)
        while view:
            taken = view[: PART_BYTES - len(self._buffer)]
            self._buffer += taken
            view = view[len(taken) :]
            if len(self._buffer) == PART_BYTES:
                self._send_part()
        return len(data)

    def flush(self) -> None:
        """Nothing to do: only whole parts can be sent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._abort()
            return
        try:
            self._finish()
        except BaseException:
            self._abort()
            raise

    def _finish(self) -> None:
        if not self._parts:
            if self._once:
                self._store.put_once(self.key, bytes(self._buffer))
            else:
                self._store.put(self.key, bytes(self._buffer))
            return
        if self._buffer:
            self._send_part()
        if not self._once:
            with translated("finish", self.key):
                self._complete()
            return
        try:
            self._store.write_absent(self.key, self._complete)
        except ObjectConflict:
            if not self._store.holds(self.key, self.bytes, self.sha256):
                raise
            self._abort()

    def _complete(self, **condition: str) -> None:
        self._store.client.complete_multipart_upload(
            **self._store.where(self.key),
            UploadId=self._upload_id,
            MultipartUpload={"Parts": self._parts},
            **condition,
        )

    def _send_part(self) -> None:
        client, where = self._store.client, self._store.where(self.key)
        with translated("write", self.key):
            if not self._upload_id:
                self._upload_id = client.create_multipart_upload(**where)["UploadId"]
            number = len(self._parts) + 1
            reply = client.upload_part(**where, UploadId=self._upload_id, PartNumber=number, Body=self._buffer)
        self._parts.append({"PartNumber": number, "ETag": reply["ETag"]})
        self._buffer = bytearray()

    def _abort(self) -> None:
        if not self._upload_id:
            return
        # Best effort: what went wrong before is what the caller must hear.
        with contextlib.suppress(StoreError), translated("abort", self.key):
            self._store.client.abort_multipart_upload(**self._store.where(self.key), UploadId=self._upload_id)


def upload_stream(store: Store, source: BinaryIO, max_bytes: int, token: str) -> tuple[str, int]:
    """Stores what `source.read` gives under `inputs/<sha256>`; returns (sha256, bytes).

    `token` is a fresh random id. Raises `TooLarge`, and whatever `source.read` raises; then
    nothing is left in the store. An empty source raises `WireError`.
    """
    temporary = f"uploads/{check_id(token, 'upload token')}"
    with PartWriter(store, temporary, max_bytes, once=False) as out:
        while data := source.read(MIB):
            out.write(data)
        if not out.bytes:
            raise WireError("the upload is empty")
    key = input_key(out.sha256)
    try:
        try:
            known = store.head(key).bytes == out.bytes
        except NoSuchObject:
            known = False
        if not known:
            copy(store, temporary, key, out.bytes)
    finally:
        with contextlib.suppress(StoreError):
            store.delete(temporary)
    return out.sha256, out.bytes


def copy(store: Store, source: str, target: str, size: int) -> None:
    """Has the server copy an object of `size` bytes, in pieces that keep every call short."""
    origin = store.where(source)
    with translated("copy", target):
        if size <= COPY_BYTES:
            store.client.copy_object(**store.where(target), CopySource=origin)
            return
        upload_id = store.client.create_multipart_upload(**store.where(target))["UploadId"]
    parts: list[dict[str, Any]] = []
    upload: dict[str, Any] = {**store.where(target), "UploadId": upload_id}
    try:
        for start in range(0, size, COPY_BYTES):
            stretch = f"bytes={start}-{min(start + COPY_BYTES, size) - 1}"
            number = len(parts) + 1
            with translated("copy", target):
                reply = store.client.upload_part_copy(
                    **upload, PartNumber=number, CopySource=origin, CopySourceRange=stretch
                )
            parts.append({"PartNumber": number, "ETag": reply["CopyPartResult"]["ETag"]})
        with translated("copy", target):
            store.client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    except BaseException:
        with contextlib.suppress(StoreError), translated("abort", target):
            store.client.abort_multipart_upload(**upload)
        raise
