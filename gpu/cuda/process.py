"""The parent's side of one GPU process: starting it, handing it a proof, telling that it is gone or hangs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu.cuda.device import (
    DevicePoisoned,
    DeviceTooOld,
    GpuError,
    KernelsMissing,
    NoDevice,
    NoDriver,
    OutOfDeviceMemory,
)
from gpu.cuda.wire import BEAT_S, Channel, pair
from gpu.errors import Cancelled, ProverError, Refused

# Whoever keeps the working directory out of the path keeps it out of the child's, too.
COMMAND = (sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", "gpu.cuda.server")
_LAST_WORDS_S = 2
_GLANCE_S = 0.001

_ERRORS = (
    GpuError,
    NoDriver,
    NoDevice,
    DeviceTooOld,
    KernelsMissing,
    OutOfDeviceMemory,
    DevicePoisoned,
    Cancelled,
    Refused,
)
_BY_WORD: dict[str, type[ProverError]] = {each.WORD: each for each in _ERRORS}


class ProcessLost(GpuError):
    """The process died, fell silent or lost its GPU: another one may do better."""


@dataclass(frozen=True)
class Limits:
    """Seconds without a word before a process is given up."""

    silence_s: float = 30 * BEAT_S
    """Without even a beat, once ready: the process is stopped, or its machine is."""
    step_s: float = 300
    """Beating, but in one step: a kernel hangs. A step is a second's work at most, or a read of 256 MiB of a key."""
    start_s: float = 600
    """To be ready: a GPU newer than the kernels has the driver compile them, once."""
    stop_s: float = 10
    """To end when told to."""


class GpuProcess:
    """Started by the constructor. Used by one thread, the one that started it: the kernel ends a child with the
    thread that made it.
    """

    def __init__(self, command: Sequence[str], visible: str | None, limits: Limits) -> None:
        """`visible`: CUDA_VISIBLE_DEVICES, None for this process's own. OSError when it can't be started."""
        ours, theirs = pair()
        environment = dict(os.environ) if visible is None else {**os.environ, "CUDA_VISIBLE_DEVICES": visible}
        with theirs:
            arguments = [*command, str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,  # a terminal's ^C is the parent's to handle: it drains
            )
        self._channel = Channel(ours)
        self._limits = limits
        self.facts: dict[str, Any] = {}
        self.step = "start"

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        """GpuUnavailable when this machine can't prove on a GPU, ProcessLost for anything else."""
        limit = self._limits.start_s  # for beats too: before the first one, libraries must come off the disk
        self.facts = self._answer(None, "ready", limit, limit)["ready"]
        self.step = "idle"

    def prove(self, order: dict[str, Any], descriptor: int) -> dict[str, Any]:
        """The process's answer to an order. The error that it reports, by name; ProcessLost when it reports none, or
        has lost its GPU.
        """
        try:
            self._channel.send(order, descriptor)
        except OSError as error:
            raise self._lost("died") from error
        self.step = "begin"
        try:
            return self._answer(order["prove"], "done", self._limits.step_s, self._limits.silence_s)
        finally:
            self.step = "idle"

    def look(self) -> None:
        """Between proofs: takes in the beats. ProcessLost when the process is gone."""
        with contextlib.suppress(TimeoutError):
            while self._channel.receive(_GLANCE_S) is not None:
                pass
            raise self._lost("died")

    def cancel(self, number: int) -> None:
        """From any thread. The proof ends soon, or has ended already."""
        with contextlib.suppress(OSError):  # a process that is gone works on nothing
            self._channel.send({"cancel": number})

    def stop(self) -> None:
        """Ends the process, by force when it does not obey."""
        with contextlib.suppress(OSError):
            self._channel.send({"stop": True})
        try:
            self._process.wait(self._limits.stop_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._channel.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._channel.close()

    def _answer(self, number: int | None, word: str, step_s: float, silence_s: float) -> dict[str, Any]:
        """The message that has `word`, past beats and steps."""
        step_began = time.monotonic()
        while True:
            left = step_began + step_s - time.monotonic()
            if left <= 0:
                raise self._lost(f"hung for {step_s:.0f} s")
            try:
                received = self._channel.receive(min(silence_s, left))
            except TimeoutError:
                if left > silence_s:
                    raise self._lost(f"was silent for {silence_s:.0f} s") from None
                continue
            if received is None:
                raise self._lost("died")
            message = received[0]
            if "step" in message:
                self.step, step_began = message["step"], time.monotonic()
            elif "failed" in message:
                self._raise(message)
            elif word in message and message.get("done") == number:
                return message

    def _raise(self, message: dict[str, Any]) -> None:
        word, text = message["error"]
        error = _BY_WORD.get(word, GpuError)(text)
        if isinstance(error, DevicePoisoned):
            raise self._lost(f"lost its GPU: {text}")
        raise error

    def _lost(self, how: str) -> ProcessLost:
        """The process is ended, whatever state it is in."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(
                _LAST_WORDS_S if how == "died" else 0
            )  # one that ends by itself has an exit code to tell
        self.kill()
        code = self._process.returncode
        end = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return ProcessLost(f"the GPU process {self._process.pid} {how} in step {self.step!r} ({end})")
