"""A stand-in for a proving daemon that speaks its protocol on loopback: takes as long as it is told, and answers
what it is told, so that a bench can meet machines that are slow, uneven, or lie.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TIMINGS = {"queue": 0.0, "load": 0.0, "synthesis": 1.0, "compute": 2.0, "verify": 1.0}


@dataclass
class SlowDaemon:
    """`answers(i)` is what the i-th request gets (proof and public), `seconds(i)` how long it takes."""

    answers: Callable[[int], dict[str, Any]]
    seconds: Callable[[int], float]
    url: str = ""
    cancelled: list[str] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serving(daemon: SlowDaemon) -> Iterator[SlowDaemon]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with daemon.lock:
                k = len(daemon.asked)
                daemon.asked.append(request)
            time.sleep(daemon.seconds(k))
            self._answer({"request_id": request["request_id"], "timings_ms": TIMINGS, **daemon.answers(k)})

        def do_GET(self) -> None:
            self._answer({"state": "ready", "backend": "stand-in", "threads": 1, "partition_workers": 1})

        def do_DELETE(self) -> None:
            daemon.cancelled.append(self.path.rpartition("/")[2])
            self._answer({"request_id": self.path, "state": "running"})

        def _answer(self, value: object) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """The bench went away before its answer: that is what is tested."""

    with Quiet(("127.0.0.1", 0), Handler) as server:
        daemon.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield daemon
        finally:
            server.shutdown()
            thread.join()
