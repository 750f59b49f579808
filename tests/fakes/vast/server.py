"""The market on a socket: its clock follows the wall's, as fast as wanted."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server

from tests.fakes.vast.errors import NoAnswer, Reset
from tests.fakes.vast.market import Market
from tests.fakes.vast.wsgi import App

HANG_S = 180.0
"""How long a socket is held open for an answer that never comes."""


def wall_clock(start_ms: int, speed: float = 1.0) -> Callable[[], int]:
    """Milliseconds since the epoch from `start_ms` on, `speed` times as fast as real time."""
    began = time.monotonic()
    return lambda: start_ms + round((time.monotonic() - began) * 1000 * speed)


class Served:
    """A running server. `url` is what `PROVEFLEET_VAST_URL` is set to. As a context it closes itself."""

    def __init__(self, market: Market, host: str, port: int):
        self.market = market
        self._stopping = threading.Event()
        self._server = make_server(host, port, self._app, threaded=True, request_handler=_Quiet)
        self.url = f"http://{host}:{self._server.server_port}"
        self._inner = App(market)
        market.logs.base = self.url
        self._threads = [
            threading.Thread(target=self._server.serve_forever, name="vast", daemon=True),
            threading.Thread(target=self._tick, name="vast-clock", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _app(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Broken connections are broken for real here."""
        try:
            return self._inner(environ, start_response)
        except NoAnswer:
            self._stopping.wait(HANG_S)
        except Reset:
            pass
        connection: socket.socket = environ["werkzeug.socket"]
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError

    def _tick(self) -> None:
        """What is due happens even while nobody asks."""
        while not self._stopping.wait(0.05):
            with self.market.lock:
                self.market.clock.catch_up()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stopping.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join(5)
        self._server.server_close()


class _Quiet(WSGIRequestHandler):
    """The market keeps its own log of requests; one on the terminal would show keys of query strings."""

    def log(self, type: str, message: str, *args: Any) -> None:
        pass
