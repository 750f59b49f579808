"""A program of a stage: started in a session of its own, its output read into a stream, ended with all its children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu.agent import child
from gpu.agent.stream import Stream

GRACE_S = 5.0
READER_GRACE_S = 2.0
READ_BYTES = 64 * 1024


class CannotStart(Exception):
    """The program could not be started at all."""


@dataclass(frozen=True)
class Ended:
    """How a program ended: `exit_code`, or None and the name of the `signal`."""

    exit_code: int | None
    signal: str = ""

    def __str__(self) -> str:
        return f"was ended by {self.signal}" if self.signal else f"ended with exit code {self.exit_code}"


class Program:
    """A running program. Start it from the main thread: PR_SET_PDEATHSIG fires when the *thread* that forked ends."""

    def __init__(self, command: list[str], work: Path, environment: Mapping[str, str], stream: Stream):
        """Raises `CannotStart`."""
        shim = [sys.executable, "-I", "-S", child.__file__, str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                [*shim, *command], cwd=work, env=dict(environment), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise CannotStart(f"{command[0]}: can't be started: {error}") from error
        self._ended: Ended | None = None
        self._reader = threading.Thread(target=self._read, args=(stream,), name=f"read-{stream.name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> Ended | None:
        """None while it runs. Once it ended, what it left behind is killed and its last output read."""
        if self._ended is None and (code := self._process.poll()) is not None:
            self._kill_group(signal.SIGKILL)
            self._reader.join(READER_GRACE_S)
            self._ended = Ended(None, _signal_name(-code)) if code < 0 else Ended(code)
        return self._ended

    def stop(self, grace_s: float = GRACE_S) -> Ended:
        """SIGTERM to the whole session, SIGKILL after `grace_s`."""
        if self._ended is not None:
            return self._ended
        self._kill_group(signal.SIGTERM)
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._kill_group(signal.SIGKILL)
            self._process.wait()
        ended = self.ended()
        assert ended is not None
        return ended

    def _kill_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # nobody left

    def _read(self, stream: Stream) -> None:
        pipe, source = self._process.stdout, stream.source()
        assert pipe is not None
        with pipe:
            while data := pipe.read(READ_BYTES):
                source.feed(data)
        source.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
