"""Launch plans and single kernels on the emulated device, every access checked, in two orders of the threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from gpu.cuda.device import Buffer
from gpu.curve.group import KernelGroup, kernel_g1, kernel_g2
from gpu.curve.params import Curve
from tests.gpu.ptx.device import EmulatedDevice
from tests.gpu.ptx.machine import ascending, shuffled


@pytest.fixture(params=[ascending, shuffled(1)], ids=["ascending", "shuffled"])
def device(request: pytest.FixtureRequest) -> EmulatedDevice:
    return EmulatedDevice(order=request.param)


@pytest.fixture
def put(device: EmulatedDevice) -> Iterator[Callable[[np.ndarray], Buffer]]:
    """Uploads an array into a buffer of just its size; afterwards nothing else may be left on the device."""
    buffers = []

    def upload(data: np.ndarray) -> Buffer:
        buffer = device.alloc(data.nbytes)
        device.upload(buffer, data)
        buffers.append(buffer)
        return buffer

    yield upload
    for buffer in buffers:
        buffer.free()
    assert device.used == 0


@pytest.fixture(params=[1, 2], ids=["g1", "g2"])
def group(request: pytest.FixtureRequest, curve: Curve) -> KernelGroup:
    return kernel_g1(curve) if request.param == 1 else kernel_g2(curve)
