"""Whether it is worth starting a GPU process: a look at files, cheap enough for machines that have no GPU.

python -m gpu.cuda.presence         ends with 0 where there is a GPU, else with 1 and the reason
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from gpu.cuda.device import NoDevice, NoDriver

_DEVICE_NODES = ("/dev/nvidiactl", "/dev/dxg")  # Linux; the Linux inside Windows


def look_for_devices() -> None:
    """NoDevice where there is no GPU."""
    if not any(Path(node).exists() for node in _DEVICE_NODES):
        raise NoDevice(f"this machine shows no NVIDIA GPU ({_DEVICE_NODES[0]} is missing); install its driver")


def look_for_gpus() -> None:
    """NoDevice, NoDriver or KernelsMissing where it is plain that no GPU can be used. CUDA is not touched."""
    look_for_devices()
    from gpu.cuda.images import kernel_folder  # after the look: machines without a GPU need not read it

    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        raise NoDriver("there is a GPU, but cuda-bindings is not installed; install provefleet[cuda]")
    kernel_folder()


if __name__ == "__main__":
    try:
        look_for_devices()
    except NoDevice as error:
        sys.exit(str(error))
