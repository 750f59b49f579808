"""A proving daemon of one's own: started, watched and stopped, and never anyone else's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from gpu.client import Client
from gpu.errors import DaemonFailed

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 10


class OwnDaemon:
    """Context manager: a `provefleet serve` on a private socket, ended with this process whatever happens
    to it.
    """

    def __init__(self, partition_workers: int, log_path: str | None = None) -> None:
        self._workers = partition_workers
        self._given_log = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    def __enter__(self) -> OwnDaemon:
        # A socket path may be at most 107 bytes long, so it lives in the temporary folder and nowhere deeper.
        self._folder = Path(tempfile.mkdtemp(prefix="provefleet-"))
        self.log_path = Path(self._given_log) if self._given_log else self._folder / "daemon.log"
        self.url = f"unix:{self._folder / 'daemon.sock'}"
        command = [sys.executable, "-m", "provefleet", "serve", "--socket", str(self._folder / "daemon.sock")]
        command += ["--partition-workers", str(self._workers), "--parent-pid", str(os.getpid())]
        try:
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self._wait_until_ready()
        except OSError as error:
            self.stop()
            raise DaemonFailed(f"{self.log_path}: the daemon can't be started: {error.strerror or error}") from error
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def death(self) -> str | None:
        """How the daemon ended, or None while it lives."""
        code = self._process.poll() if self._process else 0
        if code is None:
            return None
        if code < 0:
            return f"the daemon was killed by {signal.Signals(-code).name}"
        return f"the daemon ended with exit code {code}"

    def stop(self) -> None:
        """Ends this daemon, by force when it does not drain in time, and removes its folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_ready(self) -> None:
        client = Client(self.url)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            died = self.death()
            if died:
                lines = self.log_path.read_text(errors="replace").strip().splitlines() or ["its log is empty"]
                raise DaemonFailed(f"{died} before it was ready: {lines[-1]}")
            try:
                client.status(timeout_s=1)
            except DaemonFailed:
                if time.monotonic() > deadline:
                    late = f"the daemon was not ready after {START_TIMEOUT_S} s; see {self.log_path}"
                    raise DaemonFailed(late) from None
                time.sleep(0.05)
            else:
                return
