"""The proving daemon: HTTP on a 0600 unix socket, or on loopback with a bearer token.

    POST /prove  {"request_id", "zkey", "wtns"}  ->  {"request_id", "proof", "public", "timings_ms"}
    GET /status                                  ->  state, counters, resident keys

A refusal is a 4xx or 503 with {"error": {"name", "message"}}. A request id names one job: asked again, it
waits for the same job or gets its answer again. SIGTERM drains: running and queued proofs end and are
answered, new ones are refused.
"""

from __future__ import annotations

import hmac
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from gpu.errors import ProverError, Refused
from gpu.groth16.engine import Done, Engine

MAX_BODY = 64 << 10  # a request holds two paths and an id
READ_TIMEOUT_S = 30  # for a client that connects and then says nothing
KEPT_ANSWERS = 256
_UNPROCESSABLE = 422


@dataclass
class Job:
    """One request id. `error` is (HTTP status, name, message)."""

    zkey: str
    wtns: str
    finished: threading.Event = field(default_factory=threading.Event)
    done: Done | None = None
    error: tuple[int, str, str] | None = None


class Service:
    """What the daemon does, apart from HTTP: jobs by request id, counters, draining."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.draining = False
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._counts = {"active": 0, "done": 0, "failed": 0}
        self._since = time.monotonic()

    def submit(self, request_id: str, zkey: str, wtns: str) -> Job:
        """The finished job of this id: proved now, awaited or remembered."""
        with self._lock:
            job = self._jobs.get(request_id)
            if job is not None and (job.zkey, job.wtns) != (zkey, wtns):
                message = f"request id {request_id!r} was used with other files; take a new id"
                return Job(zkey, wtns, error=(409, "request_id_reused", message))
            mine = job is None
            if job is None:
                job = self._jobs[request_id] = Job(zkey, wtns)
        if mine:
            self._run(request_id, job)
        job.finished.wait()
        return job

    def _run(self, request_id: str, job: Job) -> None:
        begun = time.perf_counter()
        try:
            job.done = self.engine.prove(job.zkey, job.wtns)
        except ProverError as error:
            job.error = (_UNPROCESSABLE, error.name, str(error))
        except MemoryError:
            job.error = (503, "out_of_memory", f"out of memory while proving with {job.zkey}; use a larger machine")
        finally:
            if job.done is None and job.error is None:
                job.error = (500, "internal_error", "the daemon failed; its log says why")
            self._finish(request_id, job, (time.perf_counter() - begun) * 1000)

    def _finish(self, request_id: str, job: Job, ms: float) -> None:
        with self._lock:
            self._counts["done" if job.done else "failed"] += 1
            if job.done is None:
                del self._jobs[request_id]  # a failure is not an answer to keep: the same id may try again
            while len(self._jobs) > KEPT_ANSWERS and next(iter(self._jobs.values())).finished.is_set():
                self._jobs.popitem(last=False)
        job.finished.set()
        if job.done:
            phases = ", ".join(f"{name} {value:.0f}" for name, value in job.done.timings_ms.items())
            log(f"proof {request_id} ok {ms:.0f} ms ({phases})")
        elif job.error:
            log(f"proof {request_id} failed after {ms:.0f} ms: {job.error[1]}: {job.error[2]}")

    def enter(self) -> bool:
        """Counts a request in, unless draining."""
        with self._lock:
            if self.draining:
                return False
            self._counts["active"] += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._counts["active"] -= 1
            self._idle.notify_all()

    def drain(self) -> None:
        """Refuses new requests and waits until the last one has its answer."""
        with self._lock:
            self.draining = True
            while self._counts["active"]:
                self._idle.wait()

    def status(self) -> dict[str, Any]:
        with self._lock:
            counts = dict(self._counts)
        return {
            "state": "draining" if self.draining else "ready",
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._since, 3),
            "partition_workers": self.engine.partition_workers,
            "threads": self.engine.threads,
            **counts,
            "key_budget_bytes": self.engine.keys.budget,
            "keys": self.engine.keys.facts(),
        }


def log(line: str) -> None:
    """One line on stderr, whatever the files are called."""
    print(" ".join(line.split()), file=sys.stderr, flush=True)  # noqa: T201 - stderr is the daemon's log stream


class Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 with keep-alive; every answer is JSON."""

    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.1"  # so that even a refusal of noise has a status line
    timeout = READ_TIMEOUT_S
    server: Server

    def do_GET(self) -> None:
        if not self._authorised():
            return
        if self.path != "/status":
            self._refuse(404, "not_found", "the daemon knows GET /status and POST /prove")
            return
        self._answer(200, self.server.service.status())

    def do_POST(self) -> None:
        raw = self._body()
        if raw is None or not self._authorised():
            return
        if self.path != "/prove":
            self._refuse(404, "not_found", "the daemon knows GET /status and POST /prove")
            return
        service = self.server.service
        if not service.enter():
            self._refuse(503, "draining", "the daemon is about to stop; ask another one")
            return
        try:
            self._prove(raw)
        finally:
            service.leave()

    def _prove(self, raw: bytes) -> None:
        try:
            request = json.loads(raw)
        except (ValueError, RecursionError):
            request = None
        names = ("request_id", "zkey", "wtns")
        if not isinstance(request, dict) or not all(
            isinstance(request.get(name), str) and 0 < len(request[name]) <= 4096 for name in names
        ):
            self._refuse(400, "bad_request", "the body must be JSON with the strings request_id, zkey and wtns")
            return
        job = self.server.service.submit(*(request[name] for name in names))
        if job.done is None:
            self._refuse(*(job.error or (500, "internal_error", "the daemon failed; its log says why")))
            return
        self._answer(
            200,
            {
                "request_id": request["request_id"],
                "proof": job.done.proof,
                "public": job.done.public,
                "timings_ms": job.done.timings_ms,
            },
        )

    def _body(self) -> bytes | None:
        """The request's body, read in full so that the connection can go on; None after a refusal."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > MAX_BODY:
            self.close_connection = True
            self._refuse(413, "bad_length", f"a body of at most {MAX_BODY} bytes with its Content-Length is needed")
            return None
        return self.rfile.read(int(length))

    def _authorised(self) -> bool:
        token = self.server.token
        given = self.headers.get("Authorization", "")
        if token is None or hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return True
        self._refuse(401, "unauthorised", "the bearer token is missing or wrong")
        return False

    def _refuse(self, status: int, name: str, message: str) -> None:
        self._answer(status, {"error": {"name": name, "message": message}})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server itself refuses (a malformed request line, another method), in our words' form."""
        self.close_connection = True
        self._refuse(code, "bad_request", message or "the request is malformed")

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the log has a line a proof, not a line a request."""


class Server(ThreadingMixIn, HTTPServer):
    """A thread a connection, on TCP loopback or on a unix socket."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: str | tuple[str, int], service: Service, token: str | None) -> None:
        self.service = service
        self.token = token
        self.address_family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        super().__init__(address, Handler)  # type: ignore[arg-type]  # a path is AF_UNIX's address

    def server_bind(self) -> None:
        # Not HTTPServer's: it would look up a host name, which a socket path has none of.
        if self.address_family == socket.AF_INET:
            TCPServer.server_bind(self)
            return
        mask = os.umask(0o177)
        try:
            TCPServer.server_bind(self)
        finally:
            os.umask(mask)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event; anything else is a fault of ours and its trace belongs in
        the log.
        """
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address or ("unix", 0))


def listen(service: Service, bind: str | None, path: str | None, token: str) -> tuple[Server, str]:
    """The listening server and its URL. Refused for an address that is taken, not loopback, or no address."""
    try:
        if bind is None:
            target = os.path.abspath(path or "")
            _clear_stale(target)
            return Server(target, service, None), f"unix:{target}"
        host, _, port = bind.rpartition(":")
        if host not in ("127.0.0.1", "localhost") or not port.isdecimal() or int(port) > 65535:
            raise Refused(f"--bind {bind}: the daemon listens on loopback only; give 127.0.0.1:PORT or use --socket")
        server = Server(("127.0.0.1", int(port)), service, token)
        return server, f"http://127.0.0.1:{server.server_address[1]}"
    except OSError as error:
        where = bind or path
        raise Refused(f"{where}: cannot listen: {error.strerror or error}; choose another address") from error


def _clear_stale(path: str) -> None:
    """Removes a socket that nobody listens on; Refused when somebody does, or when it is no socket."""
    target = Path(path)
    if not target.exists():
        return
    if not target.is_socket():
        raise Refused(f"{path}: exists and is no socket; choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(2)
        try:
            probe.connect(path)
        except OSError:
            target.unlink()
            return
    raise Refused(f"{path}: another daemon listens there; use it, or choose another path")


def run(server: Server, announce: Callable[[], None]) -> None:
    """Serves until SIGTERM or SIGINT, drains, and returns. `announce` is called once a signal would be
    obeyed.
    """
    service = server.service

    def stop() -> None:
        log("draining")
        service.drain()
        server.shutdown()

    def on_signal(signum: int, frame: Any) -> None:
        if not service.draining:
            threading.Thread(target=stop, daemon=True).start()

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, on_signal)
    announce()
    try:
        server.serve_forever(poll_interval=0.1)
    finally:
        address = server.server_address
        server.server_close()
        if isinstance(address, str):
            Path(address).unlink(missing_ok=True)
        service.engine.close()
    log("stopped")
