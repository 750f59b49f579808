"""A controller that speaks the agent protocol from memory, and an object server: both real HTTP servers on loopback.

Chunks are checked as the real controller checks them (`logs.chunks`): a break of the chain fails the test at once.
Faults are switched on while a test runs: `answer` is a hook that may refuse any call.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gpu.protocol import (
    PREFIX,
    Command,
    Fetch,
    Lease,
    Leased,
    Pulled,
    Register,
    Registered,
    Result,
    Seal,
    Sealed,
    Spec,
    StageCommand,
    Task,
    Upload,
)
from logs.batch import unpack_batch
from logs.chunks import ChunkRefused, check_successor, open_frame
from logs.wire import ChunkRecord

BOOTSTRAP, TOKEN = "bootstrap-secret-0123", "instance-secret-4567"


class HttpServer:
    """A server on a free port of loopback; `handle` answers."""

    def __init__(self) -> None:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def log_message(self, *_: Any) -> None:
                pass

            def _serve(self) -> None:
                try:
                    owner.handle(self)
                except (ConnectionError, ValueError):
                    self.close_connection = True  # the agent ended, or the test took the connection away

            do_GET = do_POST = do_PUT = do_DELETE = _serve

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # agents are killed in mid-call
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def reply(request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)


class ObjectServer(HttpServer):
    """GET of `files` with ranges; PUT into `put`. `cut[name]` breaks a GET off after that many bytes, once."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.put: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.gets: list[str] = []
        self.cut: dict[str, int] = {}
        self.refuse = 0
        self.refuse_put = 0
        super().__init__()

    def fetch(self, name: str, data: bytes) -> Fetch:
        """Serve `data` as `name`; how a spec or a task names it."""
        self.files[name] = data
        return Fetch(name, f"{self.url}/{name}?X-Amz-Signature=abcdef", hashlib.sha256(data).hexdigest(), len(data))

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        name = request.path.strip("/").partition("?")[0]
        if request.command == "PUT":
            self.put[name] = (request.rfile.read(int(request.headers["Content-Length"])), dict(request.headers))
            return reply(request, self.refuse_put or 200, b"")
        self.gets.append(name)
        if self.refuse:
            return reply(request, self.refuse, b"")
        data, start = self.files[name], 0
        if asked := request.headers.get("Range"):
            start = int(asked.removeprefix("bytes=").partition("-")[0])
        body = data[start:]
        if name in self.cut:
            body = body[: self.cut.pop(name)]
            request.close_connection = True
        request.send_response(206 if asked else 200)
        request.send_header("Content-Length", str(len(data) - start))
        request.end_headers()
        request.wfile.write(body)
        return None


class Controller(HttpServer):
    """See the module's docstring. Everything that came is in the public attributes."""

    def __init__(self, spec: Spec, tasks: dict[int, list[Task]] | None = None):
        self.spec, self.tasks = spec, tasks or {}
        self.lease_s, self.next_s = 60.0, 0.3
        self.commands: list[Command] = []
        self.emergency: Upload | None = None
        self.answer: Callable[[str], tuple[int, str] | None] = lambda path: None
        self.down = False
        self.registered: list[Register] = []
        self.leases: list[tuple[float, Lease]] = []
        self.pulls: list[int] = []
        self.results: dict[tuple[int, int], Result] = {}
        self.artifacts: dict[str, bytes] = {}
        self.tails: dict[str, list[tuple[int, bytes]]] = {}
        self.records: dict[str, list[ChunkRecord]] = {}
        self.raw: dict[str, bytearray] = {}
        self.received: dict[str, list[float]] = {}
        self.seals: list[Seal] = []
        self.forget_on_seal: dict[str, int] = {}
        self.troubles: list[str] = []
        self.lock = threading.Lock()
        super().__init__()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("Content-Length", 0))
        body = request.rfile.read(length)
        if len(body) < length:
            request.close_connection = True  # the agent ended in the middle of a call
            return None
        path = request.path.removeprefix(PREFIX)
        if self.down:
            request.close_connection = True
            request.connection.close()
            return None
        wanted = BOOTSTRAP if path == "/register" else TOKEN
        if request.headers.get("Authorization") != f"Bearer {wanted}":
            return reply(request, 401, b'{"error": "unknown_token", "message": "no"}')
        several = unpack_batch(body) if request.command == "POST" and path.startswith("/chunks/") else []
        asked = [path, *(f"{path}/{record.seq}" for record, _ in several)]
        if (refusal := next(filter(None, map(self.answer, asked)), None)) is not None:
            text = json.dumps({"error": refusal[1], "message": "as the test wants"})
            return reply(request, refusal[0], text.encode())
        with self.lock:
            try:
                value = self._take(path, request, body)
            except (ChunkRefused, ValueError, KeyError) as error:
                self.troubles.append(f"{path}: {error}")
                return reply(request, 409, b'{"error": "conflict", "message": "see troubles"}')
        reply(request, 200, json.dumps(value).encode())
        return None

    def _take(self, path: str, request: BaseHTTPRequestHandler, body: bytes) -> dict[str, Any]:
        kind, *rest = path.strip("/").split("/")
        if kind == "register":
            self.registered.append(Register.from_json(json.loads(body)))
            return Registered(TOKEN, self.spec, self.lease_s).to_json()
        if kind == "lease":
            self.leases.append((time.monotonic(), Lease.from_json(json.loads(body))))
            return Leased(self.lease_s, self.next_s, list(self.commands), self.emergency).to_json()
        if kind == "tasks":
            message = json.loads(body)
            if rest == ["pull"]:
                self.pulls.append(message["round"])
                return Pulled(self.tasks.get(message["round"], [])).to_json()
            result = Result.from_json(message)
            self.results[result.round, result.index] = result
            return {}
        if kind == "chunks" and request.command == "POST":
            return [self._chunk(rest[0], *chunk) for chunk in unpack_batch(body)][-1]
        if kind == "chunks":
            return self._chunk(rest[0], ChunkRecord.from_json(request.headers["X-Chunk-Record"]), body)
        if kind == "tail":
            self.tails.setdefault(rest[0], []).append((int(request.headers["X-First-Line"]), body))
            return {}
        if kind == "artifacts":
            if hashlib.sha256(body).hexdigest() != request.headers["X-Sha256"]:
                raise ValueError("sha256 of the artifact")
            self.artifacts["/".join(rest)] = body
            return {}
        if kind == "seal":
            return self._seal(Seal.from_json(json.loads(body)))
        raise KeyError(path)

    def _chunk(self, stream: str, record: ChunkRecord, frame: bytes) -> dict[str, Any]:
        seq = record.seq
        have = self.records.setdefault(stream, [])
        raw = open_frame(frame, record)
        if seq < len(have):
            if have[seq] != record:
                raise ChunkRefused(f"{stream} {seq} came twice, with other contents")
        else:
            check_successor(have[-1] if have else None, record)
            have.append(record)
            self.raw.setdefault(stream, bytearray()).extend(raw)
            self.received.setdefault(stream, []).append(time.monotonic())
        return {"stored": True, "next_seq": len(have)}

    def _seal(self, seal: Seal) -> dict[str, Any]:
        self.seals.append(seal)
        for stream, keep in self.forget_on_seal.items():
            dropped = self.records[stream][keep:]
            del self.records[stream][keep:]
            cut = sum(record.raw_bytes for record in dropped)
            del self.raw[stream][len(self.raw[stream]) - cut :]
        self.forget_on_seal = {}
        have = {name: len(records) for name, records in self.records.items()}
        missing = {n: have.get(n, 0) for n, end in seal.streams.items() if have.get(n, 0) < end.chunks}
        return Sealed(not missing, missing).to_json()

    def last(self) -> Lease:
        return self.leases[-1][1]


def make_spec(command: list[str], params: list[Fetch], proofs: int, **changes: Any) -> Spec:
    """A spec of params and benchmark that runs `command`."""
    stage = StageCommand(command, **changes.pop("stage", {}))
    values: dict[str, Any] = {
        "instance": "a" * 32,
        "run": "b" * 32,
        "payload": "stand-in",
        "kind": "benchmark",
        "stages": ["params", "benchmark"],
        "params": params,
        "commands": {"benchmark": stage},
        "proofs": proofs,
        "concurrency": 1,
        "partition_workers": 1,
        "deadlines_s": {"params": 20.0, "benchmark": 60.0},
    }
    return Spec(**{**values, **changes})


def wait_for(condition: Callable[[], Any], timeout_s: float = 20.0, what: str = "") -> Any:
    """The first true value of `condition`. Real processes run beside us: this is the one place where tests wait."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {timeout_s} s: {what or condition}")
