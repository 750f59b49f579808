"""Is a service ready? Each check returns "" when it is, else what it still lacks; it takes at most 2 s.

Only the standard library: the process of `up` stays in memory for days.
"""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

from jobs.services.ports import split

TIMEOUT_S = 2.0


def running() -> str:
    """For a program that nothing can be asked of: being alive is all."""
    return ""


def valkey(path: Path) -> str:
    """PING on its socket: it answers -LOADING while it still reads its file."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64)
    except OSError as error:
        return f"its socket does not answer ({error.strerror or error})"
    return "" if answer == b"+PONG\r\n" else f"it says {answer.decode(errors='replace').strip()!r}"


def s3(port: int) -> str:
    """Any refusal in S3's own words will do here: prepare.py then uses it with our keys."""
    status, reason = get(f"127.0.0.1:{port}", "/")
    return "" if 200 <= status < 500 else reason


def web(bind: str) -> str:
    status, reason = get(bind, "/healthz")
    return "" if status == 200 else reason


def get(bind: str, path: str, timeout_s: float = TIMEOUT_S) -> tuple[int, str]:
    """The status of a GET and what is wrong in words; status 0 when nobody answers."""
    host, port = split(bind)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - asks, doesn't bind
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(300).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return 0, f"http://{bind}{path} does not answer ({error})"
    finally:
        connection.close()
    return response.status, f"http://{bind}{path} answers {response.status} {body[:200]}"
