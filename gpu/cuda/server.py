"""The process of one GPU: proves for its parent, and ends with it. Started by `gpu.cuda.client`, never forked.

    python -m gpu.cuda.server DESCRIPTOR PARENT_PID

The descriptor is a socket on which `gpu.cuda.wire` is spoken. CUDA_VISIBLE_DEVICES says which GPU; it is the first.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.cuda.backend import DeviceProver, KeyPoints, open_points
from gpu.cuda.device import Device, DevicePoisoned
from gpu.cuda.wire import BEAT_S, Channel
from gpu.errors import Cancelled, ProverError, Refused
from gpu.lifeline import end_with_parent

_POISONED = 3  # exit code

MakeProver = Callable[[], tuple[DeviceProver, dict[str, Any]]]
"""The prover of this process, and the facts about its device that the parent may show."""


class Server:
    """Takes orders one after another. A thread of its own listens, so that a cancellation is heard meanwhile."""

    def __init__(self, end: socket.socket) -> None:
        self._channel = Channel(end)
        self._orders: queue.SimpleQueue[tuple[dict[str, Any], int | None] | None] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._keys: dict[str, KeyPoints] = {}

    def run(self, make_prover: MakeProver) -> int:
        """Until told to stop. The exit code: 0, 1 for a device that can't be used, `_POISONED` for a lost one."""
        threading.Thread(target=self._beat, daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            prover, facts = make_prover()
        except ProverError as error:
            self._failed(None, error)
            return 1
        self._channel.send({"ready": facts})
        while (order := self._orders.get()) is not None:
            message, descriptor = order
            try:
                self._prove(prover, message, descriptor)
            except DevicePoisoned as error:
                self._failed(message["prove"], error)
                return _POISONED
            except ProverError as error:
                self._failed(message["prove"], error)
        prover.close()
        return 0

    def _prove(self, prover: DeviceProver, message: dict[str, Any], descriptor: int | None) -> None:
        number, sizes = message["prove"], message["n_bytes"]
        assert descriptor is not None
        with os.fdopen(descriptor, "rb") as shared:
            memory = np.frombuffer(mmap.mmap(shared.fileno(), sum(sizes), access=mmap.ACCESS_READ), np.uint8)
        witness, a, b = np.split(memory, list(itertools.accumulate(sizes))[:2])

        def progress(step: str) -> None:
            if number in self._cancelled:
                raise Cancelled("the proof was cancelled while the GPU worked on it")
            self._channel.send({"step": step})

        sums = prover.sums(self._key(message["path"], message["content"]), witness, a, b, progress)
        self._keys = {held: key for held, key in self._keys.items() if held in prover.resident}
        self._channel.send({"done": number, "sums": sums, "resident": prover.resident})

    def _key(self, path: str, content: str) -> KeyPoints:
        """The key's points. Refused when the file is no longer the one that the parent checked."""
        if content not in self._keys:
            opened = open_points(path)
            if opened.content != content:
                raise Refused(f"{path}: the key was changed while it was in use; ask for the proof again")
            self._keys[content] = opened
        return self._keys[content]

    def _failed(self, number: int | None, error: ProverError) -> None:
        self._channel.send({"failed": number, "error": [error.name, str(error)]})

    def _beat(self) -> None:
        with contextlib.suppress(OSError):  # the parent is gone: _listen sees it too, and ends the process
            for beat in itertools.count():
                self._channel.send({"beat": beat})
                time.sleep(BEAT_S)

    def _listen(self) -> None:
        while (received := self._channel.receive()) is not None:
            message, descriptor = received
            if "cancel" in message:
                self._cancelled.add(message["cancel"])
            elif "stop" in message:
                self._orders.put(None)
            else:
                self._orders.put((message, descriptor))
        # The parent is gone: nobody wants what this process may still be working on, and a kernel can't be interrupted.
        os._exit(0)


def make_prover() -> tuple[DeviceProver, dict[str, Any]]:
    """On the first GPU that this process may see. GpuUnavailable, with the reason, when there is none to use."""
    from gpu.cuda.driver import CudaDevice
    from gpu.cuda.images import images_for

    device = CudaDevice(images_for)
    return DeviceProver(device), facts_of(device, device.count)


def facts_of(device: Device, count: int) -> dict[str, Any]:
    """What the parent is told of a device; `count` devices are visible."""
    _, total = device.memory()
    return {"name": device.name, "sm_count": device.sm_count, "memory_bytes": total, "count": count, "pid": os.getpid()}


def main(arguments: list[str], make: MakeProver = make_prover) -> int:
    descriptor, parent = map(int, arguments)
    end_with_parent(parent)
    return Server(socket.socket(fileno=descriptor)).run(make)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
