"""The proving daemon: HTTP on a 0600 unix socket, or on loopback with a bearer token.

    POST   /prove           a proof, or many partitions of one key; answered when done, or at once with "wait": false
    GET    /prove/<id>      its answer; ?wait_s=30 waits for it
    DELETE /prove/<id>      cancels it
    POST   /preload         {"zkey"}: loads a key ahead of its first proof
    POST   /evict           {"zkey"}: forgets a key that is not in use
    GET    /status          jobs, workers, memory, keys; cuzk's shape
    GET    /metrics         Prometheus

docs/daemon.md has the fields. A refusal is a 4xx or 5xx with {"error": {"name", "message"}}. SIGTERM drains.
"""

from __future__ import annotations

import hmac
import json
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from urllib.parse import parse_qs, unquote

from gpu import metrics
from gpu.errors import ProverError, Refused
from gpu.journal import log
from gpu.pipeline import Failure, Partition
from gpu.request import BadRequest, parse_key_request, parse_request
from gpu.service import Job, Service
from gpu.status import status

MAX_BODY = 1 << 20  # a request holds paths and an id
MAX_WAIT_S = 600.0  # of one GET; the client asks again
READ_TIMEOUT_S = 30  # for a client that connects and then says nothing

# By the error's name; what is not here is a request that is well formed and can't be done.
_STATUS = {
    "bad_request": 400,
    "not_found": 404,
    "cancelled": 409,
    "request_id_reused": 409,
    "key_in_use": 409,
    "internal_error": 500,
    "out_of_memory": 503,
    "draining": 503,
    "busy": 503,
    "deadline_exceeded": 504,
}
_UNPROCESSABLE = 422


class NotFound(Refused):
    """No such address, job or key."""

    WORD = "not_found"


class Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 with keep-alive; every answer but the metrics is JSON."""

    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.1"  # so that even a refusal of noise has a status line
    timeout = READ_TIMEOUT_S
    server: Server

    def do_GET(self) -> None:
        self._handle(self._get, needs_body=False)

    def do_POST(self) -> None:
        self._handle(self._post, needs_body=True)

    def do_DELETE(self) -> None:
        self._handle(self._delete, needs_body=False)

    def _handle(self, answer: Callable[[bytes], None], needs_body: bool) -> None:
        raw = self._body(needs_body)
        if raw is None or not self._authorised():
            return
        service = self.server.service
        service.enter()
        try:
            answer(raw)
        except ProverError as error:
            self._refuse(_STATUS.get(error.name, _UNPROCESSABLE), error.name, " ".join(str(error).split()))
        finally:
            service.leave()

    def _get(self, raw: bytes) -> None:
        path, _, query = self.path.partition("?")
        if path == "/status":
            self._answer(200, status(self.server.service))
        elif path == "/metrics":
            self._send(200, metrics.CONTENT_TYPE, metrics.metrics(self.server.service).encode())
        else:
            job = self._job(path)
            job.finished.wait(_wait_s(query))
            self._tell(job)

    def _post(self, raw: bytes) -> None:
        service = self.server.service
        if self.path == "/prove":
            request = parse_request(raw)
            job = service.submit(request)
            if request.wait:
                job.finished.wait()
            self._tell(job)
        elif self.path == "/preload":
            if service.draining:
                raise Refused("the daemon is about to stop; ask another one")
            self._answer(200, service.engine.keys.preload(parse_key_request(raw)))
        elif self.path == "/evict":
            path = parse_key_request(raw)
            if not service.engine.keys.evict(path):
                raise NotFound(f"{path}: this key is not in memory")
            self._answer(200, {"zkey": path})
        else:
            raise NotFound("no such address; the daemon knows POST /prove, /preload and /evict")

    def _delete(self, raw: bytes) -> None:
        job = self._job(self.path)
        self.server.service.cancel(job)
        self._answer(200, {"request_id": job.request.request_id, "state": job.state})

    def _job(self, path: str) -> Job:
        before, _, name = path.rpartition("/")
        if before != "/prove" or not name:
            raise NotFound("no such address; the daemon knows /prove/<request id>, GET /status and GET /metrics")
        request_id = unquote(name)
        job = self.server.service.find(request_id)
        if job is None:
            raise NotFound(f"request id {request_id!r} is unknown, or its answer is no longer kept")
        return job

    def _tell(self, job: Job) -> None:
        """The job's answer, or its state while there is none."""
        request_id, parts = job.request.request_id, job.partitions
        if not job.finished.is_set():
            self._answer(202, {"request_id": request_id, "state": job.state})
        elif job.request.many:
            told = [{"index": index, "state": one.state, **_outcome(one)} for index, one in enumerate(parts)]
            good = sum(one.state == "done" for one in parts)
            counts = {"done": good, "failed": len(parts) - good}
            self._answer(200, {"request_id": request_id, **counts, "partitions": told})
        elif (failure := parts[0].failure) is not None:
            self._refuse(_STATUS.get(failure.name, _UNPROCESSABLE), failure.name, failure.message)
        else:
            self._answer(200, {"request_id": request_id, **_outcome(parts[0])})

    def _body(self, needed: bool) -> bytes | None:
        """The request's body, read in full so that the connection can go on; None after a refusal."""
        length = self.headers.get("Content-Length", "" if needed else "0")
        chunked = "Transfer-Encoding" in self.headers
        if chunked or not (length.isascii() and length.isdecimal()) or len(length) > 9 or int(length) > MAX_BODY:
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

    def _refuse(self, code: int, name: str, message: str) -> None:
        self._answer(code, {"error": {"name": name, "message": message}})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server itself refuses (a malformed request line, another method), in our words' form."""
        self.close_connection = True
        self._refuse(code, "bad_request", message or "the request is malformed")

    def _answer(self, code: int, value: object) -> None:
        self._send(code, "application/json", json.dumps(value).encode())

    def _send(self, code: int, content_type: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the log has a line a proof, not a line a request."""


def _outcome(one: Partition) -> dict[str, Any]:
    if one.done is not None:
        return {"proof": one.done.proof, "public": one.done.public, "timings_ms": one.done.timings_ms}
    failure = one.failure or Failure("internal_error", "the daemon failed; its log says why")
    return {"error": {"name": failure.name, "message": failure.message}, "timings_ms": one.timings_ms}


def _wait_s(query: str) -> float:
    """`wait_s` of a query string, 0 when it is not there."""
    try:
        given = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query))
        seconds = float(given.pop("wait_s", ["0"])[0])
    except ValueError:
        seconds, given = -1.0, {}
    if given or not 0 <= seconds <= MAX_WAIT_S:
        raise BadRequest(f"the query may be wait_s=SECONDS, from 0 to {MAX_WAIT_S:.0f}")
    return seconds


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


def run(server: Server, announce: Callable[[], None], drain_s: float | None = None) -> bool:
    """Serves until SIGTERM or SIGINT, drains, and returns whether every proof taken was ended. A second signal,
    or `drain_s`, cuts the draining short. `announce` is called once a signal would be obeyed.
    """
    service = server.service
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()  # what a signal handler may use
    cut = threading.Event()

    def on_signal(signum: int, frame: Any) -> None:
        signals.put(signum)

    def stop() -> None:
        signals.get()
        log("draining")
        threading.Thread(target=hurry, daemon=True).start()
        if not service.drain(drain_s):
            cut.set()
        server.shutdown()

    def hurry() -> None:
        signals.get()
        cut.set()
        service.drain(0)

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, on_signal)
    threading.Thread(target=stop, daemon=True).start()
    announce()
    try:
        server.serve_forever(poll_interval=0.1)
    finally:
        address = server.server_address
        server.server_close()
        if isinstance(address, str):
            Path(address).unlink(missing_ok=True)
        service.close()
    log("stopped")
    return not cut.is_set()
