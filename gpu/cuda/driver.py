"""A GPU by the driver's API (`cuda.bindings.driver`): no compiler, no runtime library, kernels from files.

Lives in a GPU process (`gpu.cuda.server`), never in the process that started it, and is used by one thread.
"""

from __future__ import annotations

import ctypes
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from gpu.cuda.device import (
    OLDEST_CAPABILITY,
    Argument,
    Buffer,
    DevicePoisoned,
    DeviceTooOld,
    GpuError,
    KernelsMissing,
    NoDevice,
    NoDriver,
    OutOfDeviceMemory,
    Span,
    byte_range,
    pack_arguments,
)

Images = Callable[[tuple[int, int]], Mapping[str, Path]]
"""For a compute capability, the file of each kernel: machine code, or PTX that the driver compiles. KernelsMissing
without any.
"""

STAGE_BYTES = 8 << 20
N_STAGES = 4

# After these the context is as good as before; after any other error nothing on it can be trusted.
_HARMLESS = ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
_WRONG_IMAGE = (
    "CUDA_ERROR_NO_BINARY_FOR_GPU",
    "CUDA_ERROR_INVALID_IMAGE",
    "CUDA_ERROR_INVALID_PTX",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
    "CUDA_ERROR_JIT_COMPILATION_DISABLED",
    "CUDA_ERROR_NOT_FOUND",
)


class _Stage(NamedTuple):
    """A piece of page-locked memory, and the event after which its last copy is done."""

    address: int
    view: np.ndarray
    copied: Any


class _Piece(NamedTuple):
    """A copy under way: once `filled`, the stage's first n_bytes go to the device's address."""

    stage: _Stage
    filled: Future[None]
    address: int
    n_bytes: int


def bindings() -> ModuleType:
    """The driver's API, initialised in this process. NoDriver or NoDevice when that can't be."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise NoDriver("cuda-bindings is not installed; install provefleet[cuda]") from error
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:  # what cuda-bindings raises when it does not find the library or a function of it
        raise NoDriver(f"the NVIDIA driver can't be loaded: {' '.join(str(error).split())}") from error
    if status == driver.CUresult.CUDA_ERROR_NO_DEVICE:
        raise NoDevice("the NVIDIA driver shows no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES")
    if status != driver.CUresult.CUDA_SUCCESS:
        raise NoDriver(f"the NVIDIA driver does not start ({status.name}); check nvidia-smi")
    return driver


class CudaDevice:
    """`gpu.cuda.device.Device` on GPU number `ordinal` of those that this process may see.

    NoDriver, NoDevice, DeviceTooOld, KernelsMissing when it can't be used.
    """

    def __init__(self, images: Images, ordinal: int = 0) -> None:
        self._cu = cu = bindings()
        self._poison: str | None = None
        self.driver_version: int = self._call(cu.cuDriverGetVersion)
        self.count: int = self._call(cu.cuDeviceGetCount)
        if ordinal >= self.count:
            raise NoDevice(f"there is no GPU {ordinal}, the driver shows {self.count}; check CUDA_VISIBLE_DEVICES")
        self._device = self._call(cu.cuDeviceGet, ordinal)
        self.name = self._call(cu.cuDeviceGetName, 256, self._device).split(b"\0")[0].decode(errors="replace")
        attribute = cu.CUdevice_attribute
        self.capability = (
            self._attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            self._attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
        if self.capability < OLDEST_CAPABILITY:
            have, need = (f"{major}.{minor}" for major, minor in (self.capability, OLDEST_CAPABILITY))
            raise DeviceTooOld(
                f"{self.name}: compute capability {have} is older than {need}, which the kernels need; "
                "use a GPU of the Ampere generation (RTX 30) or newer"
            )
        self.sm_count = self._attribute(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        self._images = images(self.capability)
        # A waiting thread sleeps: the cores belong to the synthesis of the next proofs.
        self._call(cu.cuDevicePrimaryCtxSetFlags, self._device, cu.CUctx_flags.CU_CTX_SCHED_BLOCKING_SYNC)
        self._call(cu.cuCtxSetCurrent, self._call(cu.cuDevicePrimaryCtxRetain, self._device))
        self._modules: list[Any] = []
        self._functions: dict[str, Any] = {}
        if self._images:
            self._load(next(iter(self._images)))  # a driver too old for the kernels shows at once
        self._stream = self._call(cu.cuStreamCreate, cu.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._fillers = ThreadPoolExecutor(N_STAGES, "staging")
        self._stages = [self._stage() for _ in range(N_STAGES)]

    def alloc(self, n_bytes: int) -> Buffer:
        try:
            address = int(self._call(self._cu.cuMemAlloc, max(n_bytes, 1)))
        except OutOfDeviceMemory:
            free, total = self.memory()
            raise OutOfDeviceMemory(
                f"{self.name}: {n_bytes >> 20} MiB are needed and {free >> 20} of {total >> 20} MiB are free; "
                "end what else runs on the GPU, or use one with more memory"
            ) from None
        return Buffer(address, n_bytes, self._free)

    def upload(self, buffer: Buffer | Span, data: np.ndarray, offset: int = 0) -> None:
        # Through page-locked pieces: the only way in which the copy engine reads at the bus's speed, and in which
        # filling one piece, sending another and running kernels go on at the same time.
        source = data.reshape(-1).view(np.uint8)
        address, length = byte_range(buffer, len(source), offset)
        under_way: deque[_Piece] = deque()
        stages = itertools.cycle(self._stages)
        for begin in range(0, length, STAGE_BYTES):
            if len(under_way) == N_STAGES:
                self._send(under_way.popleft())
            stage = next(stages)
            self._call(self._cu.cuEventSynchronize, stage.copied)
            part = source[begin : begin + STAGE_BYTES]
            filled = self._fillers.submit(np.copyto, stage.view[: len(part)], part)
            under_way.append(_Piece(stage, filled, address + begin, len(part)))
        while under_way:
            self._send(under_way.popleft())

    def download(self, buffer: Buffer | Span, n_bytes: int | None = None, offset: int = 0) -> np.ndarray:
        address, length = byte_range(buffer, n_bytes, offset)
        out = np.empty(length, np.uint8)
        if length:
            self._call(self._cu.cuMemcpyDtoHAsync, out.ctypes.data, address, length, self._stream)
        self.synchronise()
        return out

    def zero(self, buffer: Buffer | Span, n_bytes: int | None = None, offset: int = 0) -> None:
        address, length = byte_range(buffer, n_bytes, offset)
        if length:
            self._call(self._cu.cuMemsetD8Async, address, 0, length, self._stream)

    def launch(self, kernel: str, grid: int, block: int, *args: Argument) -> None:
        function = self._functions.get(kernel) or self._load(kernel)
        packed = pack_arguments(args)
        # cuLaunchKernel's `extra`: the parameter block as it is, which the driver copies before it returns.
        block_of_args = ctypes.create_string_buffer(packed, max(len(packed), 1))
        size = ctypes.c_size_t(len(packed))
        extra = (ctypes.c_void_p * 5)(
            self._cu.CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT,
            ctypes.addressof(block_of_args),
            self._cu.CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT,
            ctypes.addressof(size),
            self._cu.CU_LAUNCH_PARAM_END_AS_INT,
        )
        shape = (grid, 1, 1, block, 1, 1)
        self._call(self._cu.cuLaunchKernel, function, *shape, 0, self._stream, 0, ctypes.addressof(extra))

    def synchronise(self) -> None:
        self._call(self._cu.cuStreamSynchronize, self._stream)

    def memory(self) -> tuple[int, int]:
        free, total = self._call(self._cu.cuMemGetInfo)
        return int(free), int(total)

    def close(self) -> None:
        """Gives everything back. The process may make another device afterwards."""
        self._fillers.shutdown()
        for stage in self._stages:
            self._call(self._cu.cuEventDestroy, stage.copied)
            self._call(self._cu.cuMemFreeHost, stage.address)
        for module in self._modules:
            self._call(self._cu.cuModuleUnload, module)
        self._call(self._cu.cuStreamDestroy, self._stream)
        self._call(self._cu.cuDevicePrimaryCtxRelease, self._device)

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What the driver answers. The named error of ours that fits its error."""
        if self._poison is not None:
            raise DevicePoisoned(self._poison)
        status, *values = function(*args)
        if status == self._cu.CUresult.CUDA_SUCCESS:
            return values[0] if len(values) == 1 else tuple(values)
        raise self._error(function, status)

    def _error(self, function: Callable[..., Any], status: Any) -> GpuError:
        """The named error for what a call answered."""
        if status == self._cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return OutOfDeviceMemory(f"the GPU is out of memory ({function.__name__})")
        line = f"{getattr(self, 'name', 'the GPU')}: {function.__name__} failed with {status.name}"
        if status.name in _WRONG_IMAGE:
            return KernelsMissing(f"{line}; the driver is for CUDA {self._cuda()}, the kernels need 13.0 or newer")
        if status.name in _HARMLESS:
            return GpuError(f"{line}; report this as a bug of provefleet")
        self._poison = f"{line}; the GPU process must be started again"
        return DevicePoisoned(self._poison)

    def _cuda(self) -> str:
        return f"{self.driver_version // 1000}.{self.driver_version % 1000 // 10}"

    def _attribute(self, attribute: Any) -> int:
        return int(self._call(self._cu.cuDeviceGetAttribute, attribute, self._device))

    def _load(self, kernel: str) -> Any:
        """The function of a kernel, whose module is loaded when it is first launched: most proofs need few."""
        if kernel not in self._images:
            raise KernelsMissing(f"the built kernels have no {kernel}; build them again: python -m gpu.cuda.build")
        try:
            image = np.frombuffer(self._images[kernel].read_bytes() + b"\0", np.uint8)  # PTX must end with a zero
        except OSError as error:
            raise KernelsMissing(f"{self._images[kernel]}: {error.strerror}; build the kernels again") from error
        self._modules.append(self._call(self._cu.cuModuleLoadData, image.ctypes.data))
        self._functions[kernel] = self._call(self._cu.cuModuleGetFunction, self._modules[-1], kernel.encode())
        return self._functions[kernel]

    def _stage(self) -> _Stage:
        address = int(self._call(self._cu.cuMemAllocHost, STAGE_BYTES))
        view = np.ctypeslib.as_array((ctypes.c_uint8 * STAGE_BYTES).from_address(address))
        return _Stage(address, view, self._call(self._cu.cuEventCreate, self._cu.CUevent_flags.CU_EVENT_DISABLE_TIMING))

    def _send(self, piece: _Piece) -> None:
        piece.filled.result()
        self._call(self._cu.cuMemcpyHtoDAsync, piece.address, piece.stage.address, piece.n_bytes, self._stream)
        self._call(self._cu.cuEventRecord, piece.stage.copied, self._stream)

    def _free(self, buffer: Buffer) -> None:
        if self._poison is None:  # memory of a lost context is gone already
            self.synchronise()
            self._call(self._cu.cuMemFree, buffer.address)
