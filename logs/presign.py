"""URLs that let a machine or a browser reach one object for a while, without our keys.

A presigned PUT signs key, `If-None-Match: *`, length and SHA-256, so that it can write exactly
the announced bytes, once. SeaweedFS 4.48 enforces all four (`tests/logs/test_presign.py`).
An emergency PUT can't know its content in advance: it signs key and `If-None-Match` only, so
the reader must check the size before it reads (`MAX_EMERGENCY_BYTES`).
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from logs.errors import translated
from logs.store import Store
from logs.wire import check_sha256

MAX_EXPIRY_S = 7 * 86400  # the protocol's own limit


@dataclass(frozen=True)
class SignedPut:
    """Send a PUT to `url` with exactly these headers. 412 means that it was written already."""

    url: str
    headers: dict[str, str]
    expires_s: int


def presign_get(store: Store, key: str, expires_s: int, *, public: bool = True) -> str:
    """A URL to read one object. `public`: for a rented machine or a browser, not for us.

    A browser saves the answer and never shows it: artifacts are a stranger's files.
    """
    name = key.rpartition("/")[2]
    return _sign(
        store,
        "get_object",
        expires_s,
        public,
        **store.where(key),
        ResponseContentDisposition=f'attachment; filename="{name}"',
        ResponseContentType="application/octet-stream",
    )


def presign_put(store: Store, key: str, sha256: str, length: int, expires_s: int, *, public: bool = True) -> SignedPut:
    """A URL to write exactly the bytes with this SHA-256 (hex) and length, once."""
    checksum = base64.b64encode(bytes.fromhex(check_sha256(sha256))).decode()
    url = _sign(
        store,
        "put_object",
        expires_s,
        public,
        **store.where(key),
        IfNoneMatch="*",
        ContentLength=length,
        ChecksumSHA256=checksum,
    )
    headers = {"If-None-Match": "*", "Content-Length": str(length), "x-amz-checksum-sha256": checksum}
    return SignedPut(url, headers, expires_s)


def presign_emergency_put(store: Store, key: str, expires_s: int, *, public: bool = True) -> SignedPut:
    """A URL to write any bytes, once."""
    url = _sign(store, "put_object", expires_s, public, **store.where(key), IfNoneMatch="*")
    return SignedPut(url, {"If-None-Match": "*"}, expires_s)


def _sign(store: Store, operation: str, expires_s: int, public: bool, **parameters: Any) -> str:
    if not 0 < expires_s <= MAX_EXPIRY_S:
        raise ValueError(f"expires_s must be from 1 to {MAX_EXPIRY_S}")
    config = store.config
    endpoint = (config.public_endpoint if public else "") or config.endpoint
    with translated("sign", str(parameters["Key"])):
        url: str = store.client_at(endpoint).generate_presigned_url(operation, Params=parameters, ExpiresIn=expires_s)
    return url
