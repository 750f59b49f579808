"""Ports on loopback: the same ones at every start, new ones only where another program took the old."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

from jobs.services.errors import ServiceError
from jobs.services.known import S3_PORTS, Known

# Below Linux's ephemeral range (32768 up), so that no outgoing connection can sit on a port of ours
# between two starts.
RANGE = range(20000, 32000)


def split(bind: str) -> tuple[str, int]:
    """`host:port` as a pair; IPv6 hosts are in brackets, as in a URL."""
    host, _, port = bind.rpartition(":")
    return host.strip("[]"), int(port)


def can_bind(bind: str) -> OSError | None:
    """None when we could listen on `bind` now, else why not."""
    host, port = split(bind)
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            # Another socket may be bound with SO_REUSEADDR too: only listening tells.
            probe.listen(1)
    except OSError as error:
        return error
    return None


def holder(port: int) -> str:
    """Who listens on a TCP port, in words; empty when it can't be found (another user's process)."""
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return ""
    return ""


def require(bind: str, setting: str) -> None:
    """Raises ServiceError when an address that the operator chose by `setting` can't be listened on."""
    error = can_bind(bind)
    if error is None:
        return
    who = holder(split(bind)[1]) if isinstance(error, OSError) else ""
    raise ServiceError(
        f"can't listen on {bind} ({setting})",
        (error.strerror or str(error)) + (f", by {who}" if who else ""),
        f"Stop that program, or set {setting} to another HOST:PORT",
    )


def choose(known: Known, *, site: bool, agent: bool, s3: bool) -> tuple[Known, list[str]]:
    """`known` with a free port for each service that we start (True), and what changed, in words.

    A port that is in use now is replaced; one that was never chosen is chosen silently.
    """
    free = _free_ports(
        {int(bind.rpartition(":")[2]) for bind in (known.site_bind, known.agent_bind)} | set(known.s3_ports.values())
    )
    notes: list[str] = []

    def settle(bind: str, name: str) -> str:
        host, port = split(bind)
        if port and can_bind(bind) is None:
            return bind
        new = f"{host}:{next(free)}"
        if port:
            who = holder(port)
            notes.append(f"port {port} of the {name} is taken{f' by {who}' if who else ''}: it moves to {new}")
        return new

    ports = {
        name: int(settle(f"127.0.0.1:{known.s3_ports[name]}", f"S3 server ({name})").split(":")[1]) for name in S3_PORTS
    }
    return (
        known.with_ports(
            site=settle(known.site_bind, "site") if site else known.site_bind,
            agent=settle(known.agent_bind, "machine app") if agent else known.agent_bind,
            s3=ports if s3 else known.s3_ports,
        ),
        notes,
    )


def _free_ports(used: set[int]) -> Iterator[int]:
    """Distinct ports that nothing listens on."""
    for port in random.sample(RANGE, len(RANGE)):
        if port not in used and can_bind(f"127.0.0.1:{port}") is None:
            used.add(port)
            yield port
    raise ServiceError(
        f"no free port between {RANGE[0]} and {RANGE[-1]}",
        "others use them all",
        "Stop some programs of this machine",
    )
