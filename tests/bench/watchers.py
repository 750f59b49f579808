"""Very many browsers that look at one live page: each its own connection, read by one thread as the bytes come."""

from __future__ import annotations

import json
import re
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

WRITTEN = re.compile(r"line (\d+) written at (\d+)")


@dataclass
class Watcher:
    """One connection and what came over it: the numbers of the lines in order, and how old each was."""

    sock: socket.socket
    buffer: bytearray = field(default_factory=bytearray)
    status: bytes = b""
    lines: list[int] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)

    def take(self, data: bytes, now_ns: int) -> None:
        self.buffer += data
        *whole, rest = bytes(self.buffer).split(b"\n")
        self.buffer = bytearray(rest)
        for text in whole:
            if not self.status:
                self.status = text.strip()
            elif text.startswith(b"data: [["):
                for _, _, words in json.loads(text[6:]):
                    if found := WRITTEN.match(words):
                        self.lines.append(int(found[1]))
                        self.delays_s.append((now_ns - int(found[2])) / 1e9)


class Watchers:
    """`count` of them at `path`, signed in by `cookie`. Use as a context; `all` is complete once it is left."""

    def __init__(self, address: str, path: str, cookie: str, count: int):
        parts = urlsplit(address)
        self._where = (parts.hostname or "", parts.port or 80)
        self._request = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nCookie: {cookie}\r\n\r\n".encode()
        self._stop = threading.Event()
        self._selector = selectors.DefaultSelector()
        self.all = [self._open() for _ in range(count)]
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _open(self) -> Watcher:
        watcher = Watcher(socket.create_connection(self._where, timeout=30))
        watcher.sock.sendall(self._request)
        watcher.sock.setblocking(False)
        self._selector.register(watcher.sock, selectors.EVENT_READ, watcher)
        return watcher

    def __enter__(self) -> Watchers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for watcher in self.all:
            watcher.sock.close()

    def _read(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select(0.2):
                watcher: Watcher = key.data
                data = watcher.sock.recv(1 << 18)
                watcher.take(data, time.time_ns())
                if not data:
                    self._selector.unregister(watcher.sock)

    def wait_for(self, what: str, seconds: float) -> bool:
        """True once every watcher has the beginning of an answer ("open"), or line N ("N")."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if all(w.status if what == "open" else (w.lines and w.lines[-1] >= int(what)) for w in self.all):
                return True
            time.sleep(0.1)
        return False
