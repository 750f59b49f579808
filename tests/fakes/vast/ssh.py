"""Doors that look like sshd: the direct port of an instance and its place at the proxy, each up or down by itself."""

from __future__ import annotations

import selectors
import socket
import threading

from tests.fakes.vast.instances import Instance

BANNER = b"SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.5\r\n"


class SshDoors:
    """Set as `market.ssh`: from then on each instance that starts with an ssh runtype gets two doors on loopback.

    A door that is down has its port bound and nobody listening: connecting to it is refused.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._doors: dict[int, list[socket.socket]] = {}
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._greet, name="ssh-doors", daemon=True)
        self._thread.start()

    def open(self, i: Instance) -> None:
        """Doors for an instance, and its row says where they are."""
        self.shut(i)
        direct, proxy = self._door(i.ssh_direct_up), self._door(i.ssh_proxy_up)
        self._doors[i.id] = [direct, proxy]
        i.first_port = direct.getsockname()[1]
        i.overrides.update(public_ipaddr="127.0.0.1", ssh_host="127.0.0.1", ssh_port=proxy.getsockname()[1])

    def shut(self, i: Instance) -> None:
        for door in self._doors.pop(i.id, []):
            with self._lock:
                if door.fileno() in self._selector.get_map():
                    self._selector.unregister(door)
            door.close()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(5)
        for doors in self._doors.values():
            for door in doors:
                door.close()
        self._selector.close()

    def _door(self, up: bool) -> socket.socket:
        door = socket.socket()
        door.bind(("127.0.0.1", 0))
        if up:
            door.listen()
            with self._lock:
                self._selector.register(door, selectors.EVENT_READ)
        return door

    def _greet(self) -> None:
        while not self._closing.is_set():
            for key, _ in self._selector.select(0.1):
                try:
                    visitor, _ = key.fileobj.accept()  # type: ignore[union-attr]
                except OSError:
                    continue
                with visitor:
                    visitor.sendall(BANNER)
