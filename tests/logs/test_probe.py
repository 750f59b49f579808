from __future__ import annotations

import dataclasses
import time
import uuid

import pytest

from logs.probe import probe
from logs.store import S3Config, Store


def test_good_store(store: Store) -> None:
    checks = probe(store, uuid.uuid4().hex, time.time())
    assert [check.name for check in checks if not check.ok] == []
    names = ["reach", "write", "write once", "range", "presigned get", "presigned put", "clock", "delete"]
    assert [check.name for check in checks] == names
    assert list(store.list("_probe/")) == []


@pytest.mark.parametrize(
    ("change", "failed", "says"),
    [
        ({"endpoint": "http://127.0.0.1:1"}, ["reach"], "does not answer"),
        ({"secret_access_key": "wrong"}, ["reach"], "SECRET_ACCESS_KEY"),
        ({"access_key_id": "nobody"}, ["reach"], "ACCESS_KEY_ID"),
        ({"bucket": "no-such-bucket"}, ["reach"], "S3_BUCKET"),
        ({"public_endpoint": "http://127.0.0.1:1"}, ["presigned get", "presigned put"], "PUBLIC_ENDPOINT"),
    ],
)
def test_broken_stores(s3_config: S3Config, change: dict[str, str], failed: list[str], says: str) -> None:
    checks = probe(Store(dataclasses.replace(s3_config, **change)), uuid.uuid4().hex, time.time())
    bad = [check for check in checks if not check.ok]
    assert [check.name for check in bad] == failed
    assert all(says in check.detail for check in bad)


def test_wrong_clock(store: Store) -> None:
    checks = probe(store, uuid.uuid4().hex, time.time() + 400)
    assert [check.name for check in checks if not check.ok] == ["clock"]
