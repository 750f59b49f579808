"""Asking a proving daemon: over its unix socket (`unix:/path`) or over loopback HTTP with a token."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from gpu.errors import DaemonFailed

MAX_ANSWER = 16 << 20
_QUICK_S = 10.0  # for answers that need no proof


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

    def prove(self, request_id: str, zkey: str, wtns: str, timeout_s: float = 3600, **more: object) -> dict[str, Any]:
        """The daemon's answer. DaemonFailed with the daemon's own words when it refuses, or when it can't
        be reached. `more`: priority, deadline_s.
        """
        body = {"request_id": request_id, "zkey": os.path.abspath(zkey), "wtns": os.path.abspath(wtns), **more}
        return self._proof(self._call("POST", "/prove", timeout_s, body))

    def prove_many(
        self, request_id: str, zkey: str, partitions: Sequence[str], timeout_s: float = 3600, **more: object
    ) -> dict[str, Any]:
        """One job of many witnesses: `done`, `failed`, and each partition's proof or error."""
        paths = [os.path.abspath(wtns) for wtns in partitions]
        body = {"request_id": request_id, "zkey": os.path.abspath(zkey), "partitions": paths, **more}
        return self._call("POST", "/prove", timeout_s, body)

    def submit(self, request_id: str, zkey: str, wtns: str, **more: object) -> dict[str, Any]:
        """Asks for a proof and does not wait for it: its state, or its answer if it is there."""
        body = {"request_id": request_id, "zkey": os.path.abspath(zkey), "wtns": os.path.abspath(wtns), **more}
        return self._call("POST", "/prove", _QUICK_S, {**body, "wait": False})

    def wait(self, request_id: str, wait_s: float = 0.0) -> dict[str, Any]:
        """The answer of a job, or its `state` when it is not there within `wait_s`. DaemonFailed when it failed."""
        return self._call("GET", f"/prove/{quote(request_id, safe='')}?wait_s={wait_s:g}", wait_s + _QUICK_S, None)

    def cancel(self, request_id: str) -> dict[str, Any]:
        return self._call("DELETE", f"/prove/{quote(request_id, safe='')}", _QUICK_S, None)

    def preload(self, zkey: str, timeout_s: float = 3600) -> dict[str, Any]:
        return self._call("POST", "/preload", timeout_s, {"zkey": os.path.abspath(zkey)})

    def evict(self, zkey: str) -> dict[str, Any]:
        return self._call("POST", "/evict", _QUICK_S, {"zkey": os.path.abspath(zkey)})

    def status(self, timeout_s: float = 5) -> dict[str, Any]:
        return self._call("GET", "/status", timeout_s, None)

    def metrics(self) -> str:
        """Prometheus' text."""
        return self._request("GET", "/metrics", _QUICK_S, None)[1].decode()

    def _proof(self, answer: dict[str, Any]) -> dict[str, Any]:
        timings = answer.get("timings_ms")
        if (
            not all(name in answer for name in ("proof", "public"))
            or not isinstance(timings, dict)
            or not all(type(ms) in (int, float) for ms in timings.values())
        ):
            raise DaemonFailed(f"{self.url}: the answer is no proof; is this a provefleet daemon?")
        return answer

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self.url.startswith("unix:"):
            return _UnixConnection(self.url.removeprefix("unix:"), timeout_s)
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)

    def _request(self, method: str, path: str, timeout_s: float, body: object) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        if self._token and not self.url.startswith("unix:"):
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._connection(timeout_s)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read(MAX_ANSWER)
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise DaemonFailed(f"{self.url}: the daemon can't be reached: {why}") from error
        finally:
            connection.close()

    def _call(self, method: str, path: str, timeout_s: float, body: object) -> dict[str, Any]:
        code, raw = self._request(method, path, timeout_s, body)
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise DaemonFailed(f"{self.url}: the answer is not a JSON object; is this a provefleet daemon?")
        if code not in (200, 202):
            error_part = answer.get("error")
            told = error_part if isinstance(error_part, dict) else {}
            message = told.get("message") or f"{self.url}: the daemon answered {code}"
            raise DaemonFailed(str(message), str(told.get("name") or ""))
        return answer
