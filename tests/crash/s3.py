"""An S3 server behind the real boto3 client, without sockets: ten thousand schedules would wait for nothing else.

It answers what a controller asks for small objects: PUT (with If-None-Match and metadata), GET, HEAD, DELETE.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote, urlsplit

from botocore.awsrequest import AWSResponse

from logs.store import S3Config, Store

ENDPOINT = "http://s3.crash.test"
Call = Callable[[], Any]


class Raw(io.BytesIO):
    """A body as urllib3 has it."""

    def stream(self, *_: object, **__: object) -> list[bytes]:
        return [self.read()]


class MemoryS3:
    """Objects by key. `around(name, call)` is asked to make each call, and may fail it."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.around: Callable[[str, Call], Any] = lambda _name, call: call()
        config = S3Config(ENDPOINT, "crash", "us-east-1", "an-access-key", "a-secret-key")
        self.store = Store(config)
        self.store.client.meta.events.register("before-send.s3", self._send)

    def _send(self, request: Any, **_: Any) -> AWSResponse:
        key = unquote(urlsplit(request.url).path).removeprefix("/crash/")
        # botocore signs a body that it may have to read twice, so it is bytes or a seekable file.
        body = request.body if isinstance(request.body, bytes) or request.body is None else request.body.read()
        told: AWSResponse = self.around(f"s3 {request.method}", lambda: self._answer(request, key, body or b""))
        return told

    def _answer(self, request: Any, key: str, body: bytes) -> AWSResponse:
        headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        if request.method == "PUT":
            if headers.get("if-none-match") == "*" and key in self.objects:
                return _reply(request, 412, b"<Error><Code>PreconditionFailed</Code></Error>")
            meta = {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}
            self.objects[key] = (body, meta)
            return _reply(request, 200, b"", {"ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"'})
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return _reply(request, 204, b"")
        if key not in self.objects:
            return _reply(request, 404, b"" if request.method == "HEAD" else b"<Error><Code>NoSuchKey</Code></Error>")
        data, meta = self.objects[key]
        told = {"Content-Length": str(len(data)), "Last-Modified": formatdate(1_780_000_000, usegmt=True), **meta}
        if request.method == "HEAD":
            return _reply(request, 200, b"", told)
        if span := headers.get("range"):
            first, _, last = span.removeprefix("bytes=").partition("-")
            data = data[int(first) : int(last) + 1]
            return _reply(request, 206, data, {**told, "Content-Length": str(len(data))})
        return _reply(request, 200, data, told)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _reply(request: Any, status: int, data: bytes, headers: dict[str, str] | None = None) -> AWSResponse:
    from botocore.compat import HTTPHeaders

    told = HTTPHeaders()
    for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
        told[name] = value
    return AWSResponse(request.url, status, told, Raw(data))
