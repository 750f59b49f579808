"""A `gpu.cuda.device.Device` on this CPU: launch plans run as they are, with every access of every kernel checked."""

from __future__ import annotations

from collections import Counter

import numpy as np

from gpu.cuda.device import (
    Argument,
    Buffer,
    DevicePoisoned,
    GpuError,
    OutOfDeviceMemory,
    Span,
    byte_range,
    pack_arguments,
)
from tests.gpu.ptx.kernels import module_of
from tests.gpu.ptx.machine import Order, ascending

_ALIGNMENT = 256


class EmulatedDevice:
    """`total` bytes of memory. Kernels may touch live buffers only: LaunchError otherwise.

    `failures` maps the number of a call (from 1, every method that reaches a GPU counts) to the error that it raises;
    after a DevicePoisoned every later call raises it too, as on a real device.
    """

    name = "Emulated GPU"
    sm_count = 2

    def __init__(
        self, total: int = 1 << 30, order: Order = ascending, failures: dict[int, GpuError] | None = None
    ) -> None:
        self.total = total
        self.calls = 0
        self.launches: Counter[str] = Counter()
        self.peak = 0
        self._order = order
        self._failures = {} if failures is None else failures
        self._poison: DevicePoisoned | None = None
        self._held: dict[int, np.ndarray] = {}
        self._sizes: dict[int, int] = {}

    @property
    def used(self) -> int:
        """Bytes in live buffers: 0 when everything was given back."""
        return sum(self._sizes.values())

    def alloc(self, n_bytes: int) -> Buffer:
        self._call()
        if self.used + n_bytes > self.total:
            raise OutOfDeviceMemory(f"{n_bytes} bytes are needed, {self.total - self.used} of {self.total} are free")
        memory = np.full(n_bytes + 2 * _ALIGNMENT, 0xA5, np.uint8)  # nothing is there until somebody writes it
        address = memory.ctypes.data + -memory.ctypes.data % _ALIGNMENT
        self._held[address], self._sizes[address] = memory, n_bytes
        self.peak = max(self.peak, self.used)
        return Buffer(address, n_bytes, self._free)

    def upload(self, buffer: Buffer | Span, data: np.ndarray, offset: int = 0) -> None:
        self._call()
        source = data.reshape(-1).view(np.uint8)
        self._bytes(buffer, len(source), offset)[:] = source

    def download(self, buffer: Buffer | Span, n_bytes: int | None = None, offset: int = 0) -> np.ndarray:
        self._call()
        return self._bytes(buffer, n_bytes, offset).copy()

    def zero(self, buffer: Buffer | Span, n_bytes: int | None = None, offset: int = 0) -> None:
        self._call()
        self._bytes(buffer, n_bytes, offset)[:] = 0

    def launch(self, kernel: str, grid: int, block: int, *args: Argument) -> None:
        self._call()
        self.launches[kernel] += 1
        pack_arguments(args)  # refuses what the driver would be given wrongly
        values = [arg if isinstance(arg, int) else arg.address for arg in args]
        memory = list(self._sizes.items())
        module_of(kernel).launch(kernel, grid, block, values, self._order, memory)

    def synchronise(self) -> None:
        self._call()

    def memory(self) -> tuple[int, int]:
        self._call()
        return self.total - self.used, self.total

    def _bytes(self, buffer: Buffer | Span, n_bytes: int | None, offset: int) -> np.ndarray:
        address, length = byte_range(buffer, n_bytes, offset)
        base = buffer.address if isinstance(buffer, Buffer) else buffer.buffer.address
        memory = self._held[base]
        at = address - memory.ctypes.data
        return memory[at : at + length]

    def _call(self) -> None:
        self.calls += 1
        if self._poison is not None:
            raise self._poison
        failure = self._failures.get(self.calls)
        if isinstance(failure, DevicePoisoned):
            self._poison = failure
        if failure is not None:
            raise failure

    def _free(self, buffer: Buffer) -> None:
        del self._held[buffer.address], self._sizes[buffer.address]
