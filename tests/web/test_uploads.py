"""Uploads, to a real S3: streamed, checked, refused with a reason."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Request
from sqlalchemy import select

from jobs.context import Context
from jobs.domain.models import Input
from logs.store import S3Config, Store
from tests.web.site import Browser, Clock, seeded, settings_of
from web.uploads import READ_BYTES, BadUpload, Multipart

FIXTURES = Path(__file__).parents[1] / "fixtures"
LIMIT = 2_000_000


@pytest.fixture
def context(tmp_path: Path, s3_config: S3Config, store: Store, clock: Clock) -> Context:
    context, _ = seeded(settings_of(tmp_path, s3_config, max_upload_bytes=LIMIT), clock)
    context.store = store
    return context


def put(browser: Browser, kind: str, name: str, data: bytes | io.IOBase, **more: object):
    headers = {"X-CSRFToken": browser.token}
    return browser.client.put(f"/inputs/{kind}", query_string={"name": name}, data=data, headers=headers, **more)


def stored(context: Context) -> list[str]:
    with context.sessions() as session:
        return list(session.scalars(select(Input.name).where(Input.sha256 != "", Input.created_by == "operator")))


@pytest.fixture
def browser(signed_in: Callable[[str], Browser]) -> Browser:
    return signed_in("operator")


@pytest.mark.parametrize("curve", ["bn254", "bls12381"])
def test_a_key_and_a_witness(browser: Browser, context: Context, curve: str) -> None:
    for kind, name in (("zkey", "circuit.zkey"), ("wtns", "witness.wtns")):
        data = (FIXTURES / f"{curve}_chain1k" / name).read_bytes()
        answer = put(browser, kind, name, data)
        assert answer.status_code == 201, answer.text
        assert answer.json["facts"]["curve"] == curve
    assert "circuit.zkey" in stored(context)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("../../etc/passwd.wtns", "passwd.wtns"), ("C:\\evil\\w.wtns", "w.wtns"), ("a\x00\u202eb.wtns", "ab.wtns")],
)
def test_names_are_names_only(browser: Browser, name: str, shown: str) -> None:
    data = (FIXTURES / "bn254_chain1k" / "witness.wtns").read_bytes()
    assert put(browser, "wtns", name, data).json["name"] == shown


@pytest.mark.parametrize(
    ("data", "status", "word"),
    [
        (b"", 400, "empty"),
        (b"not a witness at all", 400, ""),
        (b"wtns" + b"\xff" * 100, 400, ""),
        (b"x" * (LIMIT + 1), 413, "limit"),
    ],
)
def test_refused_with_a_reason(browser: Browser, context: Context, data: bytes, status: int, word: str) -> None:
    before = stored(context)
    answer = put(browser, "wtns", "w.wtns", data)
    assert answer.status_code == status
    assert word in answer.json["error"]
    assert "w.wtns" in answer.json["error"] or status == 413
    assert stored(context) == before


def test_too_large_is_refused_before_it_is_read(browser: Browser) -> None:
    class Untouched(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            raise AssertionError("the body was read")

    headers = {"X-CSRFToken": browser.token}
    environ = {"wsgi.input": Untouched(), "CONTENT_LENGTH": str(10 * LIMIT)}
    answer = browser.client.put("/inputs/zkey?name=a", headers=headers, environ_overrides=environ)
    assert answer.status_code == 413
    assert "20,000,000 bytes" in answer.json["error"]


def test_the_form_without_scripts(browser: Browser, context: Context) -> None:
    files = [
        (io.BytesIO((FIXTURES / f"{c}_chain1k" / "witness.wtns").read_bytes()), f"{c}.wtns")
        for c in ("bn254", "bls12381")
    ]
    answer = browser.client.post(
        "/inputs/wtns", data={"csrf_token": browser.token, "file": files}, content_type="multipart/form-data"
    )
    assert answer.location == "/inputs?kind=wtns"
    assert {"bn254.wtns", "bls12381.wtns"} <= set(stored(context))
    page = browser.get("/inputs?kind=wtns").text
    assert "bn254.wtns is stored" in page


def test_the_form_refuses_and_says_why(browser: Browser, context: Context) -> None:
    def send(data: bytes, name: str):
        fields = {"csrf_token": browser.token, "file": (io.BytesIO(data), name)}
        return browser.client.post("/inputs/zkey", data=fields, content_type="multipart/form-data")

    assert send(b"", "zero.zkey").status_code == 302
    assert "zero.zkey is empty" in browser.get("/inputs").text
    assert send(b"x" * (LIMIT + 10), "big.zkey").status_code == 413
    send(b"", "")
    assert "No file was chosen" in browser.get("/inputs").text


def test_the_token_must_come_before_the_file(browser: Browser, context: Context) -> None:
    before = stored(context)
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wtns"\r\n\r\nwtns\r\n'
        b'--x\r\nContent-Disposition: form-data; name="csrf_token"\r\n\r\n' + browser.token.encode() + b"\r\n--x--\r\n"
    )
    answer = browser.client.post("/inputs/wtns", data=body, content_type="multipart/form-data; boundary=x")
    assert answer.status_code == 400
    assert stored(context) == before


def test_a_broken_body(browser: Browser) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="csrf_token"\r\n\r\n' + browser.token.encode()
    for content_type in ("multipart/form-data; boundary=x", "text/plain"):
        assert browser.client.post("/inputs/wtns", data=body, content_type=content_type).status_code == 400


def test_multipart_holds_little_in_memory() -> None:
    """64 MiB pass through; no read asks for, and no answer holds, more than a few blocks."""
    size = 64 << 20
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'

    class Body(io.RawIOBase):
        left = size
        largest = 0
        began = False

        def readable(self) -> bool:
            return True

        def read(self, n: int = -1) -> bytes:
            assert 0 < n <= 1 << 20
            if not self.began:
                self.began = True
                return head
            taken = min(n, self.left)
            self.left -= taken
            return b"\0" * taken if taken else b""

    environ = {
        "REQUEST_METHOD": "POST",
        "CONTENT_TYPE": "multipart/form-data; boundary=x",
        "wsgi.input": Body(),
        "wsgi.input_terminated": True,
    }
    part = next(Multipart(Request(environ)).files())
    read = 0
    while read < size - READ_BYTES * 2:
        read += len(part.read(READ_BYTES))
    with pytest.raises(BadUpload, match="broke off"):
        part.drain()
