"""A program of a stage: started in a session of its own, its output read into a stream, ended with all its children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu.agent import child
from gpu.agent.stream import Stream

GRACE_S = 5.0
READER_GRACE_S = 2.0
READ_BYTES = 64 * 1024
WAIT_S = 0.02


class CannotStart(Exception):
    """The program could not be started at all."""


@dataclass(frozen=True)
class Ended:
    """How a program ended: `exit_code`, or None and the name of the `signal`; `stopped`: we made it end."""

    exit_code: int | None
    signal: str = ""
    stopped: bool = False
    core_dumped: bool = False
    ran_s: float = 0.0

    def __str__(self) -> str:
        dumped = ", its core was dumped" if self.core_dumped else ""
        return f"was ended by {self.signal}{dumped}" if self.signal else f"ended with exit code {self.exit_code}"


class Program:
    """A running program. Start it from the main thread: PR_SET_PDEATHSIG fires when the *thread* that forked ends."""

    def __init__(
        self,
        command: list[str],
        work: Path,
        environment: Mapping[str, str],
        stream: Stream,
        tell: Callable[[Ended], None],
    ):
        """`tell` is told once how it ended, as soon as somebody asks. Raises `CannotStart`."""
        self._tell, self._began = tell, time.monotonic()
        self._stopped = False
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
        if self._ended is None and (core_dumped := self._dumped()) is not None:
            code = self._process.wait()
            self._kill_group(signal.SIGKILL)
            self._reader.join(READER_GRACE_S)
            name = _signal_name(-code) if code < 0 else ""
            ran_s = round(time.monotonic() - self._began, 3)
            self._ended = Ended(None if name else code, name, self._stopped, core_dumped, ran_s)
            self._tell(self._ended)
        return self._ended

    def _dumped(self) -> bool | None:
        """Whether it left a core dump; None while it runs. Asked before `subprocess` takes the answer and drops it."""
        if self._process.returncode is not None:
            return False
        left = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None if left is None else left.si_code == os.CLD_DUMPED

    def stop(self, grace_s: float = GRACE_S) -> Ended:
        """SIGTERM to the whole session, SIGKILL after `grace_s`."""
        if (ended := self.ended()) is not None:
            return ended
        self._stopped = True
        self._kill_group(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while (ended := self.ended()) is None:
            if time.monotonic() > deadline:
                self._kill_group(signal.SIGKILL)
            time.sleep(WAIT_S)
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
