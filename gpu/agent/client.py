"""The agent's side of HTTP: calls to the machine app, each with a timeout and a named error."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, urlsplit

from gpu.protocol import (
    MAX_JSON_BYTES,
    PREFIX,
    ChunkAck,
    Lease,
    Leased,
    Message,
    ProtocolError,
    Pull,
    Pulled,
    Register,
    Registered,
    Result,
    Seal,
    Sealed,
)
from logs.batch import pack_batch
from logs.wire import ChunkRecord

M = TypeVar("M", bound=Message)

TIMEOUT_S = 15.0
TAIL_TIMEOUT_S = 3.0
UPLOAD_TIMEOUT_S = 60.0
PULL_TIMEOUT_S = 60.0  # the controller signs up to 10,000 URLs, a millisecond each
MAX_REPLY_BYTES = 8 * MAX_JSON_BYTES  # a round of 10,000 witnesses with their presigned URLs


class ControllerError(Exception):
    """Base of what goes wrong between agent and controller."""


class Unreachable(ControllerError):
    """No usable answer: network, timeout, 5xx, 429, or a reply that is none of ours. Trying again may help."""


class Refused(ControllerError):
    """The controller answered no (4xx). Trying the same again won't help."""

    def __init__(self, status: int, code: str, message: str):
        super().__init__(f"{status} {code}: {message}")
        self.status, self.code = status, code


def delays(first_s: float = 0.2, most_s: float = 5.0) -> Iterator[float]:
    """Seconds to wait before each further try: doubling, jittered so that many agents don't come back at once."""
    wait = first_s
    while True:
        yield wait * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
        wait = min(wait * 2, most_s)


class Client:
    """Calls of one agent; thread-safe, with one kept-alive connection a thread. Raises `Unreachable`, `Refused`."""

    def __init__(self, url: str, token: str):
        parts = urlsplit(url)
        self._host, self._base = parts.netloc, parts.path.rstrip("/") + PREFIX
        self._https = parts.scheme == "https"
        self._token = token
        self._local = threading.local()

    def with_token(self, token: str) -> Client:
        """The same controller, spoken to as the registered instance."""
        scheme = "https" if self._https else "http"
        return Client(f"{scheme}://{self._host}{self._base.removesuffix(PREFIX)}", token)

    def register(self, message: Register) -> Registered:
        return self._post("register", message, Registered)

    def lease(self, message: Lease) -> Leased:
        return self._post("lease", message, Leased)

    def pull(self, message: Pull) -> Pulled:
        return self._post("tasks/pull", message, Pulled, PULL_TIMEOUT_S)

    def result(self, message: Result) -> None:
        self._call("POST", "tasks/result", json.dumps(message.to_json()).encode())

    def seal(self, message: Seal) -> Sealed:
        return self._post("seal", message, Sealed)

    def put_chunk(self, stream: str, record: ChunkRecord, frame: bytes) -> ChunkAck:
        headers = {"X-Chunk-Record": record.to_json(), "Content-Type": "application/zstd"}
        reply = self._call("PUT", f"chunks/{stream}/{record.seq}", frame, headers, TIMEOUT_S)
        return _parsed(ChunkAck, reply)

    def put_chunks(self, stream: str, chunks: list[tuple[ChunkRecord, bytes]]) -> ChunkAck:
        """Consecutive chunks, 64 at most: all of them are taken, or none."""
        headers = {"Content-Type": "application/octet-stream"}
        return _parsed(ChunkAck, self._call("POST", f"chunks/{stream}", pack_batch(chunks), headers, UPLOAD_TIMEOUT_S))

    def put_tail(self, stream: str, first_line: int, data: bytes) -> None:
        headers = {"X-First-Line": str(first_line), "Content-Type": "application/octet-stream"}
        self._call("PUT", f"tail/{stream}", data, headers, TAIL_TIMEOUT_S)

    def put_artifact(self, name: str, path: Path, sha256: str) -> None:
        """Raises OSError too, when the file can't be read."""
        headers = {"X-Sha256": sha256, "Content-Type": "application/octet-stream"}
        with path.open("rb") as file:
            headers["Content-Length"] = str(path.stat().st_size)
            self._call("PUT", f"artifacts/{quote(name)}", file, headers, UPLOAD_TIMEOUT_S)

    def _post(self, path: str, message: Message, reply: type[M], timeout_s: float = TIMEOUT_S) -> M:
        body = json.dumps(message.to_json()).encode()
        return _parsed(reply, self._call("POST", path, body, timeout_s=timeout_s))

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | BinaryIO,
        headers: dict[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:
        sent = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **(headers or {})}
        while True:
            connection, kept = self._connection(timeout_s)
            try:
                connection.request(method, f"{self._base}/{path}", body, sent)
                response = connection.getresponse()
                data = response.read(MAX_REPLY_BYTES + 1)
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                if kept and isinstance(body, bytes):
                    continue  # the other end had closed the idle connection; every call may be sent twice
                raise Unreachable(f"{method} {path}: {type(error).__name__}: {error}") from error
            if response.will_close or len(data) > MAX_REPLY_BYTES:
                self._drop()
            return _checked(response.status, data, f"{method} {path}")

    def _connection(self, timeout_s: float) -> tuple[http.client.HTTPConnection, bool]:
        connection = getattr(self._local, "connection", None)
        kept = connection is not None
        if connection is None:
            kind = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
            connection = self._local.connection = kind(self._host, timeout=timeout_s)
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        return connection, kept

    def _drop(self) -> None:
        self._local.connection.close()
        self._local.connection = None


def _checked(status: int, data: bytes, what: str) -> Any:
    try:
        value = json.loads(data) if data.strip() else {}
    except ValueError:
        value = None
    if status in (200, 201, 202, 204) and value is not None and len(data) <= MAX_REPLY_BYTES:
        return value
    said = value if isinstance(value, dict) else {}
    code, message = str(said.get("error", ""))[:80], str(said.get("message", ""))[:500]
    if 400 <= status < 500 and status not in (408, 425, 429):
        raise Refused(status, code or "refused", message or what)
    raise Unreachable(f"{what}: answer {status} {code} {message}".strip())


def _parsed(kind: type[M], value: Any) -> M:
    try:
        return kind.from_json(value)
    except ProtocolError as error:
        raise Unreachable(f"the controller's answer is not of this protocol: {error}") from error
