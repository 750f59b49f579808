"""Cases for gpu/cuda/driver.py, run by test_driver.py in a process whose libcuda.so.1 is the stand-in of libcuda.c."""

from __future__ import annotations

import ctypes
import json
import re
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from gpu.cuda.check.arithmetic import transforms
from gpu.cuda.check.setting import Setting, Sizes
from gpu.cuda.check.sums import sums
from gpu.cuda.device import (
    DevicePoisoned,
    DeviceTooOld,
    GpuError,
    KernelsMissing,
    NoDevice,
    NoDriver,
    OutOfDeviceMemory,
)
from gpu.cuda.driver import N_STAGES, STAGE_BYTES, CudaDevice
from tests.gpu.ptx.kernels import module_of, ptx_file

fake = ctypes.CDLL("libcuda.so.1")
fake.fake_used.restype = fake.fake_host.restype = ctypes.c_size_t
fake.fake_objects.restype = ctypes.c_long
fake.fake_device.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_size_t]
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t)
FOLDER = Path(tempfile.mkdtemp())
KERNELS = {name: FOLDER / name for name in ("first", "first_and_more", "misnamed")}
for each, entry in zip(KERNELS, ("first", "first_and_more", "another"), strict=True):
    KERNELS[each].write_text(f".version 8.0\n.visible .entry {entry}(\n) {{ ret; }}\n")
GIB = 1 << 30


def device(total: int = GIB) -> CudaDevice:
    fake.fake_device(1, 9, 0, total)
    return CudaDevice(lambda capability: KERNELS)


def raises(kind: type[Exception], words: str, call: Callable[[], object]) -> None:
    with pytest.raises(kind, match=re.escape(words)) as found:
        call()
    assert found.type is kind
    assert "\n" not in str(found.value)


def case_facts() -> None:
    fake.fake_device(3, 12, 0, GIB)
    asked = []

    def images(capability: tuple[int, int]) -> dict[str, Path]:
        asked.append(capability)
        return KERNELS

    made = CudaDevice(images, 2)
    assert (made.name, made.capability, made.sm_count, made.count) == ("Fake H200", (12, 0), 2, 3)
    assert asked == [(12, 0)]
    assert made.memory() == (GIB, GIB)
    made.close()


def case_memory_round_trip() -> None:
    made = device()
    for n in (1, 4096, STAGE_BYTES, STAGE_BYTES * (2 * N_STAGES + 1) + 17):
        data = np.random.default_rng(n).integers(0, 256, n, np.uint8)
        with made.alloc(n + 100) as buffer:
            assert buffer.address % 256 == 0
            made.zero(buffer)
            made.upload(buffer, data, 100)
            assert (made.download(buffer, 100) == 0).all()
            assert (made.download(buffer.at(100)) == data).all()
            made.zero(buffer.at(50), min(n, 10) + 50)
            assert not made.download(buffer, 100 + min(n, 10)).any()
            assert (made.download(buffer, n - min(n, 10), 100 + min(n, 10)) == data[10:]).all()
    with made.alloc(16) as words:
        made.upload(words, np.arange(4, dtype=np.uint32))
        assert made.download(words).view(np.uint32).tolist() == [0, 1, 2, 3]
    made.close()


def case_a_copy_past_the_end_is_refused() -> None:
    made = device()
    buffer = made.alloc(64)
    raises(ValueError, "bytes 32 to 96", lambda: made.upload(buffer, np.zeros(64, np.uint8), 32))
    raises(ValueError, "bytes 0 to 65", lambda: made.download(buffer, 65))
    raises(ValueError, "buffer of 32", lambda: made.zero(buffer.at(32), 33))
    buffer.free()
    buffer.free()
    raises(ValueError, "freed", lambda: made.download(buffer))
    raises(ValueError, "freed", lambda: made.launch("first", 1, 1, buffer))
    made.close()


def case_launch() -> None:
    made = device()
    seen = []

    @LAUNCH
    def on_launch(kernel, grid, block, args, n_bytes):
        seen.append((kernel, grid, block, ctypes.string_at(args, n_bytes)))
        return 0

    fake.fake_launch(on_launch)
    buffer = made.alloc(1024)
    made.launch("first", 7, 128, 5, buffer, 0xFFFFFFFF, buffer.at(32))
    made.launch("first_and_more", 1, 1)
    at = buffer.address
    assert seen == [
        (b"first", 7, 128, struct.pack("<IxxxxQIxxxxQ", 5, at, 0xFFFFFFFF, at + 32)),
        (b"first_and_more", 1, 1, b""),
    ]
    raises(KernelsMissing, "no second", lambda: made.launch("second", 1, 1))
    raises(KernelsMissing, "NOT_FOUND", lambda: made.launch("misnamed", 1, 1))
    raises(ValueError, "uint32", lambda: made.launch("first", 1, 1, 1 << 32))
    raises(GpuError, "INVALID_VALUE", lambda: made.launch("first", 1, 2048))
    made.launch("first", 1, 1, 1)  # a refused launch poisons nothing
    buffer.free()
    made.close()


def case_out_of_memory() -> None:
    made = device(100 << 20)
    held = made.alloc(60 << 20)
    raises(OutOfDeviceMemory, "50 MiB are needed and 40 of 100 MiB are free", lambda: made.alloc(50 << 20))
    held.free()
    made.alloc(50 << 20).free()
    made.close()


def case_poison() -> None:
    made = device()
    buffer = made.alloc(64)
    fake.fake_failure(b"cuStreamSynchronize", 1, 700, 1)
    made.synchronise()
    raises(DevicePoisoned, "CUDA_ERROR_ILLEGAL_ADDRESS", made.synchronise)
    for call in (made.synchronise, made.memory, lambda: made.alloc(1), lambda: made.launch("first", 1, 1)):
        raises(DevicePoisoned, "Fake H200", call)
    buffer.free()  # there is nothing to give back any more, and nothing to complain of


def case_every_bad_end_is_named() -> None:
    for status in (214, 702, 716, 719, 999):
        made = device()
        fake.fake_failure(b"cuLaunchKernel", 0, status, 1)
        raises(DevicePoisoned, "cuLaunchKernel", lambda made=made: made.launch("first", 1, 1))
        fake.fake_reset()


def case_unusable() -> None:
    fake.fake_device(1, 7, 5, GIB)
    raises(DeviceTooOld, "capability 7.5 is older than 8.6", lambda: CudaDevice(lambda capability: KERNELS))
    fake.fake_device(1, 9, 0, GIB)
    broken = FOLDER / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    raises(KernelsMissing, "CUDA 13.0", lambda: CudaDevice(lambda capability: {"first": broken}))
    raises(NoDevice, "no GPU 1", lambda: CudaDevice(lambda capability: KERNELS, 1))
    fake.fake_device(0, 9, 0, GIB)
    raises(NoDevice, "nvidia-smi", lambda: CudaDevice(lambda capability: KERNELS))
    fake.fake_device(1, 9, 0, GIB)
    fake.fake_failure(b"cuInit", 0, 803, 0)
    raises(NoDriver, "SYSTEM_DRIVER_MISMATCH", lambda: CudaDevice(lambda capability: KERNELS))


class OurKernels(Mapping[str, Path]):
    """The PTX of every kernel, compiled when it is asked for."""

    def __getitem__(self, symbol: str) -> Path:
        return ptx_file(symbol)

    def __iter__(self) -> Iterator[str]:
        return iter(["bn254_multiply"])

    def __len__(self) -> int:
        return 1

    def __contains__(self, symbol: object) -> bool:
        return True


def case_our_kernels_give_right_answers() -> None:
    """The parameter blocks that the driver gets are what the kernels read: transforms and sums as on a GPU."""
    launched = set()

    @LAUNCH
    def on_launch(kernel, grid, block, args, n_bytes):
        name = kernel.decode()
        launched.add(name)
        head = ptx_file(name).read_text().split(".entry", 1)[1].split(")", 1)[0]
        types = re.findall(r"\.param \.[ub](32|64)", head)
        packed = ctypes.string_at(args, n_bytes)
        values = struct.unpack("@" + "".join("Q" if bits == "64" else "I" for bits in types), packed)
        module_of(name).launch(name, grid, block, values)
        return 0

    fake.fake_launch(on_launch)
    made = []

    def make() -> CudaDevice:
        fake.fake_device(1, 9, 0, GIB)
        made.append(CudaDevice(lambda capability: OurKernels()))
        return made[-1]

    sizes = Sizes(transforms=(3,), distinct=4, sums_g1=(3,), sums_g2=(3,))
    assert transforms(Setting(make, (), sizes))
    assert sums(Setting(make, (), sizes))
    for each in made:
        each.close()
    assert {"bn254_g1_accumulate", "bls12381_g2_accumulate", "bls12381_ntt_dif"} <= launched


def main() -> None:
    """Prints a JSON object: case -> "ok", or the traceback."""
    found = {}
    for name, case in [(name, case) for name, case in globals().items() if name.startswith("case_")]:
        fake.fake_reset()
        try:
            case()
            held = fake.fake_used(), fake.fake_host(), fake.fake_objects()
            # A lost context took everything with it; a refused device never got that far.
            assert held == (0, 0, 0) or name in ("case_poison", "case_every_bad_end_is_named"), f"leaked {held}"
            found[name] = "ok"
        except Exception:  # noqa: BLE001 - how a case fails is what this process reports
            found[name] = traceback.format_exc()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
