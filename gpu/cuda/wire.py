"""What a GPU process and its parent say to each other: JSON objects over a pair of sequenced-packet sockets.

To the process:  {"prove": id, "path", "content", "n_bytes": [witness, a, b]} with a descriptor of memory that holds the
                 three vectors one after another; {"cancel": id}; {"stop": true}
To the parent:   {"ready": facts}; {"beat": n}; {"step": what}; {"done": id, "sums", "resident"};
                 {"failed": id, "error": [word, message]}; an id of null speaks of the process as a whole

`content` stands for what the file at `path` must hold, as `gpu.groth16.binfile.BinFile` says. Sums are points in affine
coordinates, as numbers.
"""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

from gpu.curve.reference import Point

MAX_BYTES = 64 << 10
"""Of a message: far more than five points or a path need."""

BEAT_S = 1.0
"""A process that lives says so this often."""


class Channel:
    """One end of the pair. Any thread may send; one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        """OSError when the other end is gone."""
        raw = json.dumps(message).encode()
        with self._lock:
            socket.send_fds(self._end, [raw], [] if descriptor is None else [descriptor])

    def receive(self, timeout_s: float | None = None) -> tuple[dict[str, Any], int | None] | None:
        """The next message and the descriptor that came with it; None when the other end is gone.

        TimeoutError after `timeout_s` without one.
        """
        self._end.settimeout(timeout_s)
        try:
            raw, descriptors, _, _ = socket.recv_fds(self._end, MAX_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            return None
        if not raw:
            return None
        return json.loads(raw), descriptors[0] if descriptors else None

    def close(self) -> None:
        self._end.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends; not inherited by other processes than those they are handed to."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def point_from(value: Any) -> Point:
    """A point as JSON gives it back."""
    return None if value is None else (_coordinate(value[0]), _coordinate(value[1]))


def _coordinate(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
