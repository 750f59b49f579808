"""Whether it is worth starting a GPU process: a look at files, cheap enough for machines that have no GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from gpu.cuda.device import NoDevice, NoDriver

_DEVICE_NODES = ("/dev/nvidiactl", "/dev/dxg")  # Linux; the Linux inside Windows


def look_for_gpus() -> None:
    """NoDevice, NoDriver or KernelsMissing where it is plain that no GPU can be used. CUDA is not touched."""
    if not any(Path(node).exists() for node in _DEVICE_NODES):
        raise NoDevice(f"this machine shows no NVIDIA GPU ({_DEVICE_NODES[0]} is missing); install its driver")
    from gpu.cuda.images import kernel_folder  # after the look: machines without a GPU need not read it

    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        raise NoDriver("there is a GPU, but cuda-bindings is not installed; install provefleet[cuda]")
    kernel_folder()
