"""The seam between launch plans and a GPU: what a device can do, and the named ways in which it fails.

Implemented by `gpu.cuda.driver` on a real GPU; the tests run the same plans on an emulated one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gpu.errors import ProverError, Refused

OLDEST_CAPABILITY = (8, 6)
"""Compute capability of the oldest GPU that the kernels are built for."""

MAX_SHARED_BYTES = 48 << 10
"""Static shared memory of a block, at most: what every GPU grants without asking."""


class GpuError(ProverError):
    """Anything that goes wrong on or around a GPU."""

    WORD = "gpu_failed"


class GpuUnavailable(GpuError, Refused):
    """This machine can't prove on a GPU; the CPU may still do. The kinds below say why."""

    WORD = "gpu_unavailable"


class NoDriver(GpuUnavailable):
    """No NVIDIA driver, one that is too old, or no `cuda-bindings` to speak to it."""

    WORD = "no_gpu_driver"


class NoDevice(GpuUnavailable):
    """There is no GPU."""

    WORD = "no_gpu"


class DeviceTooOld(GpuUnavailable):
    """A GPU older than the kernels are built for."""

    WORD = "gpu_too_old"


class KernelsMissing(GpuUnavailable):
    """No folder of compiled kernels, or one that does not fit this program or this GPU."""

    WORD = "no_gpu_kernels"


class OutOfDeviceMemory(GpuError):
    """An allocation that the GPU has no room for. The device is as usable as before."""

    WORD = "out_of_gpu_memory"


class DevicePoisoned(GpuError):
    """The GPU's context is lost (illegal access, ECC error, hung kernel): only a new process can use the GPU again."""

    WORD = "gpu_poisoned"


class Buffer:
    """Device memory at `address`, `n_bytes` long, 256-byte aligned. Freed by `free`, or as a context manager."""

    def __init__(self, address: int, n_bytes: int, release: Callable[[Buffer], None]) -> None:
        self.address = address
        self.n_bytes = n_bytes
        self._release: Callable[[Buffer], None] | None = release

    def free(self) -> None:
        """Gives the memory back, after everything launched so far. A second call does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release(self)

    @property
    def freed(self) -> bool:
        return self._release is None

    def at(self, offset: int) -> Span:
        """The memory from byte `offset` on. ValueError outside of the buffer."""
        return Span(self, 0).at(offset)

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


@dataclass(frozen=True)
class Span:
    """A buffer from byte `offset` to its end: a pointer argument of a kernel."""

    buffer: Buffer
    offset: int

    @property
    def address(self) -> int:
        return self.buffer.address + self.offset

    @property
    def n_bytes(self) -> int:
        return self.buffer.n_bytes - self.offset

    def at(self, offset: int) -> Span:
        """`offset` bytes further on. ValueError outside of the buffer."""
        if not 0 <= self.offset + offset <= self.buffer.n_bytes:
            raise ValueError(f"byte {self.offset + offset} of a buffer of {self.buffer.n_bytes}")
        return Span(self.buffer, self.offset + offset)


Argument = int | Buffer | Span
"""Of a kernel: a uint32, or a pointer."""


class Device(Protocol):
    """A GPU as launch plans see it: memory and kernels, in the order in which they are asked for.

    Every method may raise DevicePoisoned; `launch` is asynchronous, so an error may show at a later call.
    """

    name: str
    sm_count: int
    """Streaming multiprocessors: how many blocks fill the GPU is a multiple of it."""

    def alloc(self, n_bytes: int) -> Buffer:
        """Memory with unspecified content. OutOfDeviceMemory when there is no room."""
        ...

    def upload(self, buffer: Buffer | Span, data: np.ndarray, offset: int = 0) -> None:
        """Copies a contiguous array to byte `offset`; `data` may be reused on return. ValueError past the end."""
        ...

    def download(self, buffer: Buffer | Span, n_bytes: int | None = None, offset: int = 0) -> np.ndarray:
        """A copy as uint8, of everything from `offset` on unless told; waits for what was launched before."""
        ...

    def zero(self, buffer: Buffer | Span, n_bytes: int | None = None, offset: int = 0) -> None:
        """Sets bytes to 0, everything from `offset` on unless told."""
        ...

    def launch(self, kernel: str, grid: int, block: int, *args: Argument) -> None:
        """Runs the kernel of that symbol in `grid` blocks of `block` threads, after everything before it.

        KernelsMissing for a symbol that the built kernels do not have.
        """
        ...

    def synchronise(self) -> None:
        """Waits until everything asked for so far is done."""
        ...

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        ...


def pack_arguments(args: tuple[Argument, ...]) -> bytes:
    """The kernel's parameter block: pointers as aligned u64, everything else as u32.

    ValueError for a number that is no uint32 and for a freed buffer.
    """
    out = bytearray()
    for arg in args:
        if isinstance(arg, Buffer | Span):
            buffer = arg.buffer if isinstance(arg, Span) else arg
            if buffer.freed:
                raise ValueError("a kernel argument points into a freed buffer")
            out += bytes(-len(out) % 8) + struct.pack("<Q", arg.address)
        elif 0 <= arg < 1 << 32:
            out += struct.pack("<I", arg)
        else:
            raise ValueError(f"{arg} is no uint32")
    return bytes(out)


def byte_range(buffer: Buffer | Span, n_bytes: int | None, offset: int) -> tuple[int, int]:
    """Address and length of a copy. ValueError when it leaves the buffer or the buffer was freed."""
    span = Span(buffer, 0) if isinstance(buffer, Buffer) else buffer
    length = span.n_bytes - offset if n_bytes is None else n_bytes
    if span.buffer.freed or offset < 0 or length < 0 or offset + length > span.n_bytes:
        raise ValueError(
            f"bytes {offset} to {offset + length} of a buffer of {span.n_bytes}, freed: {span.buffer.freed}"
        )
    return span.address + offset, length
