"""From a registered kernel to PTX: numba and NVVM, without a GPU or a driver.

PTX of compute capability 8.6 is also what newer GPUs are compiled for: there is one PTX a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numba.cuda.dispatcher
from numba.cuda import compile as numba_compile
from numba.cuda import types

from gpu.cuda.registry import Kernel

CAPABILITY = (8, 6)
_TYPES = {"p": types.CPointer(types.uint32), "u": types.uint32}


def ptx_of(kernel: Kernel) -> str:
    """The PTX module with this kernel, under its symbol."""
    signature = types.void(*kernel.fields, *[_TYPES[letter] for letter in kernel.parameters])
    with _pretended_device():
        text, _ = numba_compile(
            kernel.function,
            signature,
            device=False,
            abi="numba",
            output="ptx",
            cc=CAPABILITY,
            launch_bounds=(kernel.max_threads, kernel.min_blocks),
        )
    mangled = re.findall(r"\.visible \.entry (\w+)\(", text)
    if len(mangled) != 1:
        raise ValueError(f"{kernel.symbol}: NVVM wrote {len(mangled)} entry points")
    return _plain_names(re.sub(rf"\b{mangled[0]}", kernel.symbol, text))


def _plain_names(text: str) -> str:
    """Without what numba counts from one kernel to the next, so that a kernel's text depends on its source alone."""
    text = re.sub(r"^\.common \.global \.align 8 \.u64 _ZN\w*NumbaEnv\w*;\n", "", text, flags=re.MULTILINE)
    names: dict[str, str] = {}
    return re.sub(r"\b_cudapy_(\w+?)_\d+\b", lambda m: names.setdefault(m[0], f"{m[1]}_{len(names)}"), text)


@contextmanager
def _pretended_device() -> Iterator[None]:
    """numba-cuda 0.30 asks the driver for the capability when a kernel calls a device function, also when it was
    told one: here is no driver to ask.
    """
    module: Any = numba.cuda.dispatcher
    asks = module.get_current_device
    module.get_current_device = lambda: SimpleNamespace(compute_capability=CAPABILITY)
    try:
        yield
    finally:
        module.get_current_device = asks
