"""The GPU process of `gpu.cuda.server` on an emulated device, with faults to order.

    python -m tests.gpu.cuda.emulated_server SCRIPT DESCRIPTOR PARENT_PID

SCRIPT is a file of JSON lines; each start takes away the first one, and none is left for a process that runs without
faults. A line may have: `total`, bytes of memory; `smallest_range`; `count`, GPUs to claim; `call` and `fault`: what
happens at that call of the device, counted from the first one; `start`: what happens instead of becoming ready.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from gpu.cuda.backend import DeviceProver
from gpu.cuda.device import DevicePoisoned, GpuError, NoDevice, OutOfDeviceMemory
from gpu.cuda.server import facts_of, main
from tests.gpu.ptx.device import EmulatedDevice


class FaultyDevice(EmulatedDevice):
    """Does what `fault` says at the call of that number."""

    def __init__(self, total: int, call: int, fault: str) -> None:
        errors: dict[str, GpuError] = {
            "poison": DevicePoisoned("an illegal access, ordered by the test"),
            "out of memory": OutOfDeviceMemory("no memory, as the test ordered"),
            "error": GpuError("an error, ordered by the test"),
        }
        super().__init__(total, failures={call: errors[fault]} if fault in errors else None)
        self._at = call
        self._fault = fault

    def _call(self) -> None:
        super()._call()
        if self.calls == self._at:
            happen(self._fault)


def happen(what: str) -> None:
    """A fault of the process itself."""
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "hang":
        time.sleep(3600)
    elif what == "crash":
        raise RuntimeError("a bug, ordered by the test")


def next_line(script: Path) -> dict[str, Any]:
    """The first line, taken out of the file."""
    if not script.is_file():
        return {}
    with script.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = file.read().splitlines()
        file.seek(0)
        file.truncate()
        file.write("\n".join(lines[1:]))
    return json.loads(lines[0]) if lines else {}


def prover_by(line: dict[str, Any]) -> tuple[DeviceProver, dict[str, Any]]:
    if line.get("start") == "no device":
        raise NoDevice("the test took it away")
    happen(line.get("start", ""))
    device = FaultyDevice(line.get("total", 1 << 30), line.get("call", 0), line.get("fault", ""))
    visible = {"visible": os.environ.get("CUDA_VISIBLE_DEVICES")}
    return DeviceProver(device, line.get("smallest_range", 1 << 16)), facts_of(device, line.get("count", 1)) | visible


if __name__ == "__main__":
    ordered = next_line(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:], lambda: prover_by(ordered)))
