"""Asking a proving daemon: over its unix socket (`unix:/path`) or over loopback HTTP with a token."""

from __future__ import annotations

import http.client
import json
import os
import socket
from typing import Any
from urllib.parse import urlsplit

from gpu.errors import DaemonFailed

MAX_ANSWER = 16 << 20


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Client:
    """A daemon at `url`. Every call opens its own connection, so threads may share a client."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        self._token = token or os.environ.get("PROVEFLEET_DAEMON_TOKEN")
        parts = urlsplit(url)
        if not (url.startswith("unix:/") or (parts.scheme == "http" and parts.hostname and parts.port)):
            raise DaemonFailed(f"--url {url}: not an address; give unix:/PATH or http://127.0.0.1:PORT")

    def prove(self, request_id: str, zkey: str, wtns: str, timeout_s: float = 3600) -> dict[str, Any]:
        """The daemon's answer. DaemonFailed with the daemon's own words when it refuses, or when it can't
        be reached.
        """
        body = {"request_id": request_id, "zkey": os.path.abspath(zkey), "wtns": os.path.abspath(wtns)}
        answer = self._call("POST", "/prove", timeout_s, body)
        if not all(name in answer for name in ("proof", "public", "timings_ms")):
            raise DaemonFailed(f"{self.url}: the answer is no proof; is this a provefleet daemon?")
        return answer

    def status(self, timeout_s: float = 5) -> dict[str, Any]:
        return self._call("GET", "/status", timeout_s, None)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self.url.startswith("unix:"):
            return _UnixConnection(self.url.removeprefix("unix:"), timeout_s)
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)

    def _call(self, method: str, path: str, timeout_s: float, body: object) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._token and not self.url.startswith("unix:"):
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._connection(timeout_s)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            raw = response.read(MAX_ANSWER)
            answer = json.loads(raw)
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise DaemonFailed(f"{self.url}: the daemon can't be reached: {why}") from error
        finally:
            connection.close()
        if not isinstance(answer, dict):
            raise DaemonFailed(f"{self.url}: the answer is not a JSON object; is this a provefleet daemon?")
        if response.status != 200:
            error_part = answer.get("error")
            told = error_part if isinstance(error_part, dict) else {}
            message = told.get("message") or f"{self.url}: the daemon answered {response.status}"
            raise DaemonFailed(str(message), str(told.get("name") or ""))
        return answer
