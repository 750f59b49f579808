"""What SeaweedFS enforces of a presigned URL. A store that does not must not be used."""

from __future__ import annotations

import dataclasses
import hashlib
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

from logs.errors import NoSuchObject
from logs.presign import SignedPut, presign_emergency_put, presign_get, presign_put
from logs.store import S3Config, Store
from logs.wire import WireError

BODY = b"proof number seven\n"
SHA256 = hashlib.sha256(BODY).hexdigest()


def send(
    url: str, method: str = "GET", body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    request = urllib.request.Request(url, body, headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def put(signed: SignedPut, body: bytes, **changes: str | None) -> int:
    headers = {k: v for k, v in {**signed.headers, **changes}.items() if v is not None}
    return send(signed.url, "PUT", body, headers)[0]


def absent(store: Store, key: str) -> bool:
    try:
        store.head(key)
    except NoSuchObject:
        return True
    return False


def test_put_takes_the_signed_bytes_once(store: Store, instance: str) -> None:
    key = f"runs/r/{instance}/_artifacts/p.json"
    signed = presign_put(store, key, SHA256, len(BODY), 60)
    assert put(signed, BODY) == 200
    assert store.get(key, 100) == BODY
    assert put(signed, BODY) == 412
    assert store.put_once(key, BODY) is False


def test_put_refuses_everything_else(store: Store, instance: str) -> None:
    key = f"runs/r/{instance}/x"
    signed = presign_put(store, key, SHA256, len(BODY), 60)
    forged = bytes(reversed(BODY))
    other_sum = presign_put(store, key, hashlib.sha256(forged).hexdigest(), len(BODY), 60).headers
    attempts = {
        "other bytes": put(signed, forged),
        "other bytes and their checksum": send(signed.url, "PUT", forged, other_sum)[0],
        "longer": put(signed, BODY + b"x", **{"Content-Length": str(len(BODY) + 1)}),
        "shorter": put(signed, BODY[:-1], **{"Content-Length": str(len(BODY) - 1)}),
        "no checksum": put(signed, BODY, **{"x-amz-checksum-sha256": None}),
        "no condition": put(signed, BODY, **{"If-None-Match": None}),
        "other condition": put(signed, BODY, **{"If-None-Match": '"x"'}),
        "other key": send(signed.url.replace("/x?", "/y?"), "PUT", BODY, signed.headers)[0],
        "longer life": send(signed.url.replace("Expires=60", "Expires=6000"), "PUT", BODY, signed.headers)[0],
        "read": send(signed.url)[0],
        "delete": send(signed.url, "DELETE", BODY, signed.headers)[0],
    }
    assert {name: status for name, status in attempts.items() if status not in (400, 403)} == {}
    assert absent(store, key), "a refused PUT must leave nothing"
    assert put(signed, BODY) == 200


def test_put_of_nothing(store: Store, instance: str) -> None:
    signed = presign_put(store, f"{instance}/x", hashlib.sha256(b"").hexdigest(), 0, 60)
    assert put(signed, b"") == 200


def test_emergency_put_only_once(store: Store, instance: str) -> None:
    signed = presign_emergency_put(store, f"{instance}/x", 60)
    assert put(signed, b"first", **{"If-None-Match": None}) == 403
    assert put(signed, b"first") == 200
    assert put(signed, b"second") == 412
    assert store.get(f"{instance}/x", 10) == b"first"


def test_get_is_a_download(store: Store, instance: str) -> None:
    store.put(f"{instance}/page.html", b"<script>alert(1)</script>")
    url = presign_get(store, f"{instance}/page.html", 60)
    with urllib.request.urlopen(url, timeout=10) as reply:
        assert reply.read() == b"<script>alert(1)</script>"
        assert reply.headers["Content-Disposition"] == 'attachment; filename="page.html"'
        assert reply.headers["Content-Type"] == "application/octet-stream"
    assert send(url.replace("page.html?", "other.html?"))[0] == 403
    assert send(url, "DELETE")[0] == 403


def test_urls_expire(store: Store, instance: str) -> None:
    store.put(f"{instance}/x", b"x")
    url = presign_get(store, f"{instance}/x", 1)
    signed = presign_emergency_put(store, f"{instance}/y", 1)
    time.sleep(2.1)  # the server's clock can't be passed in
    assert send(url)[0] == 403
    assert put(signed, b"y") == 403


def test_public_endpoint_is_in_the_url(s3_config: S3Config) -> None:
    public = Store(dataclasses.replace(s3_config, public_endpoint="https://s3.example.org:8443"))
    assert urlsplit(presign_get(public, "x", 60)).netloc == "s3.example.org:8443"
    assert urlsplit(presign_put(public, "x", SHA256, 1, 60).url).netloc == "s3.example.org:8443"
    assert presign_get(public, "x", 60, public=False).startswith(s3_config.endpoint)


def test_keys_are_not_in_the_url(s3_config: S3Config, store: Store) -> None:
    assert s3_config.secret_access_key not in presign_put(store, "x", SHA256, 1, 60).url


def test_bad_arguments(store: Store) -> None:
    for expires_s in (0, -1, 8 * 86400):
        with pytest.raises(ValueError, match="expires_s"):
            presign_get(store, "x", expires_s)
    with pytest.raises(WireError):
        presign_put(store, "x", "zz", 1, 60)
