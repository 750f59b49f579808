"""Every kernel: which function, for which fields, with which parameters and launch bounds.

Kernel modules declare theirs with `@kernel`; building and testing go over `kernels()`. Symbols are `<curve>_<name>`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpu.curve.params import CURVES, Curve
from gpu.field.cuda import FieldType

_MODULES = ("gpu.field.cuda_kernels", "gpu.ntt.cuda", "gpu.msm.sorting", "gpu.msm.cuda")
_KERNELS: dict[str, Kernel] = {}


@dataclass(frozen=True)
class Kernel:
    """`parameters` has a letter each: p, a pointer to uint32 in device memory (16-byte aligned), or u, a uint32.

    `function` takes one argument for each of `fields`, which a launch does not pass, then the parameters. A block
    has at most `max_threads` threads, and registers are limited so that `min_blocks` such blocks fit on a
    multiprocessor.
    """

    symbol: str
    function: Callable[..., None]
    fields: tuple[FieldType, ...]
    parameters: str
    max_threads: int
    min_blocks: int


def kernel(
    name: str,
    parameters: str,
    *,
    fields: Callable[[Curve], Sequence[FieldType]],
    max_threads: int,
    min_blocks: int = 1,
) -> Callable[[Any], Any]:
    """Registers a function as a kernel of every curve; `fields` says for which field types. The function stays as
    it is, so that decorators can be stacked: one function, several kernels.
    """
    if set(parameters) - set("pu"):
        raise ValueError(f"{name}: parameters are p or u, not {parameters!r}")

    def register(function: Any) -> Any:
        for curve in CURVES.values():
            symbol = f"{curve.name}_{name}"
            if symbol in _KERNELS:
                raise ValueError(f"two kernels are called {symbol}")
            _KERNELS[symbol] = Kernel(symbol, function, tuple(fields(curve)), parameters, max_threads, min_blocks)
        return function

    return register


def kernels() -> dict[str, Kernel]:
    """Every kernel by its symbol, in order."""
    for module in _MODULES:
        importlib.import_module(module)
    return dict(sorted(_KERNELS.items()))
