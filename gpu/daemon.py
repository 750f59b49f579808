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
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from gpu.errors import Refused
from gpu.service import Service, log

MAX_BODY = 64 << 10  # a request holds two paths and an id
READ_TIMEOUT_S = 30  # for a client that connects and then says nothing


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
