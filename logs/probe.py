"""Does the object store do what the archive needs? For `provefleet doctor`."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from logs.errors import ObjectConflict, StoreError, StoreUnavailable, translated
from logs.presign import SignedPut, presign_get, presign_put
from logs.store import Store
from logs.wire import check_id

MAX_SKEW_S = 300  # a store refuses signatures at 15 minutes; warn well before
_TIMEOUT_S = 10
_BODY = b"provefleet probe\n"


@dataclass(frozen=True)
class Check:
    """One check: `detail` is a measure when `ok`, else what is wrong and what to do."""

    name: str
    ok: bool
    detail: str


def probe(store: Store, token: str, now_s: float) -> list[Check]:
    """Tries everything on a throw-away object `_probe/<token>`; never raises a `StoreError`.

    Checks `reach`, `write`, `write once`, `range`, `presigned get`, `presigned put`, `clock`, `delete`;
    stops after the first of the first two that fails, since all others would.
    """
    key = f"_probe/{check_id(token)}"
    checks: list[Check] = []
    basic: list[tuple[str, Callable[[], str]]] = [
        ("reach", lambda: _reach(store)),
        ("write", lambda: _write(store, key)),
    ]
    further: list[tuple[str, Callable[[], str]]] = [
        ("write once", lambda: _write_once(store, key)),
        ("range", lambda: _range(store, key)),
        ("presigned get", lambda: _presigned_get(store, key)),
        ("presigned put", lambda: _presigned_put(store, f"{key}-put")),
        ("clock", lambda: _clock(store, now_s)),
    ]
    for name, check in basic:
        checks.append(_tried(name, check))
        if not checks[-1].ok:
            return checks
    checks += [_tried(name, check) for name, check in further]
    checks.append(_tried("delete", lambda: _delete(store, key, f"{key}-put")))
    return checks


def _tried(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except StoreError as error:
        return Check(name, False, str(error))


def _reach(store: Store) -> str:
    _list_one(store)
    return f"{store.config.endpoint}, bucket {store.config.bucket}"


def _list_one(store: Store) -> str:
    """The store's own date. Lists rather than asks for HEAD, whose errors carry no reason."""
    with translated("list", store.config.bucket):
        reply = store.client.list_objects_v2(Bucket=store.config.bucket, MaxKeys=1)
    return str(reply["ResponseMetadata"]["HTTPHeaders"].get("date", ""))


def _write(store: Store, key: str) -> str:
    store.put(key, _BODY)
    if store.get(key, len(_BODY)) != _BODY:
        raise StoreError("what was written does not come back; don't use this store")
    return "written and read back"


def _write_once(store: Store, key: str) -> str:
    try:
        with translated("write", key):
            store.client.put_object(**store.where(key), Body=b"other", IfNoneMatch="*")
    except ObjectConflict:
        return "If-None-Match is honoured"
    raise StoreError("If-None-Match is not honoured: archived logs could be overwritten; use another store")


def _range(store: Store, key: str) -> str:
    if b"".join(store.open_range(key, 5, 4)) != _BODY[5:9]:
        raise StoreError("Range gives wrong bytes; don't use this store")
    return "byte ranges are honoured"


def _presigned_get(store: Store, key: str) -> str:
    request = urllib.request.Request(presign_get(store, key, 60))  # noqa: S310 - our own endpoint
    if _send(request) != (200, _BODY):
        raise StoreError("a presigned URL is refused; check PROVEFLEET_S3_PUBLIC_ENDPOINT")
    return f"through {store.config.public_endpoint or store.config.endpoint}"


def _presigned_put(store: Store, key: str) -> str:
    signed = presign_put(store, key, hashlib.sha256(_BODY).hexdigest(), len(_BODY), 60)
    forged = bytes(reversed(_BODY))
    if _send(_put(signed, forged))[0] < 400:
        raise StoreError("a presigned PUT takes other bytes than were signed; use another store")
    if _send(_put(signed, _BODY))[0] != 200:
        raise StoreError("a presigned PUT is refused; check PROVEFLEET_S3_PUBLIC_ENDPOINT")
    if _send(_put(signed, _BODY))[0] != 412:
        raise StoreError("a presigned PUT can be used twice; use another store")
    return "only the signed bytes, only once"


def _clock(store: Store, now_s: float) -> str:
    try:
        skew = now_s - parsedate_to_datetime(_list_one(store)).timestamp()
    except ValueError:
        return "the store sends no date"
    if abs(skew) > MAX_SKEW_S:
        raise StoreError(f"this clock and the store's differ by {skew:.0f} s; set them (NTP)")
    return f"within {abs(skew):.0f} s of the store's"


def _delete(store: Store, *keys: str) -> str:
    for key in keys:
        store.delete(key)
    return "the probe's objects are gone"


def _put(signed: SignedPut, body: bytes) -> urllib.request.Request:
    return urllib.request.Request(  # noqa: S310 - our own endpoint
        signed.url, data=body, headers=signed.headers, method="PUT"
    )


def _send(request: urllib.request.Request) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:  # noqa: S310
            return reply.status, reply.read(1024)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code, b""
    except OSError as error:
        raise StoreUnavailable(
            f"presigned URLs lead to {request.host}, which does not answer ({error}); "
            "check PROVEFLEET_S3_PUBLIC_ENDPOINT"
        ) from error
