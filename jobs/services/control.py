"""Talks to supervisord over its unix socket (XML-RPC), with a timeout."""

from __future__ import annotations

import http.client
import socket
import xmlrpc.client
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 3.0
SOCKET = "supervisor.sock"
# supervisor.states.ProcessStates, by name as the interface gives them.
UP = ("STARTING", "RUNNING")


class Unreachable(Exception):
    """supervisord does not answer, or refuses."""


@dataclass(frozen=True)
class Process:
    """A program as supervisord sees it. `state` is RUNNING, STARTING, BACKOFF, FATAL, STOPPED, EXITED or STOPPING."""

    name: str
    group: str
    state: str
    pid: int
    note: str
    started_s: int


class Control:
    """One supervisord. Every call raises Unreachable when it can't be made."""

    def __init__(self, sockets_dir: Path) -> None:
        self._server = xmlrpc.client.ServerProxy("http://localhost/RPC2", transport=_Unix(sockets_dir / SOCKET))

    def processes(self) -> list[Process]:
        found = self._call("supervisor.getAllProcessInfo")
        return [
            Process(p["name"], p["group"], p["statename"], p["pid"], p["spawnerr"] or p["description"], p["start"])
            for p in found
        ]

    def start(self, group: str, name: str) -> None:
        """Asks for a start and does not wait; harmless when it runs."""
        try:
            self._call("supervisor.startProcess", f"{group}:{name}", False)
        except Unreachable as error:
            if "ALREADY_STARTED" not in str(error):
                raise

    def _call(self, method: str, *args: Any) -> Any:
        try:
            return getattr(self._server, method)(*args)
        except xmlrpc.client.Fault as error:
            raise Unreachable(error.faultString) from error
        except (OSError, http.client.HTTPException, xmlrpc.client.Error) as error:
            raise Unreachable(str(error) or type(error).__name__) from error


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


class _Unix(xmlrpc.client.Transport):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        # One connection a call: supervisord may be restarted between two.
        return _Connection(self._path)
