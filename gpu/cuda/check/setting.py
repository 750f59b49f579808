"""What the steps of the check have in common: how much to do, where, and how a wrong answer is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu.cuda.device import Device

SEED = 20  # the check is the same each time, or a failure could not be repeated
BLOCK = 256

Figures = dict[str, Any]


class Wrong(Exception):
    """The GPU's answer is not the right one."""


@dataclass(frozen=True)
class Sizes:
    """How much each step does; lists are of log2."""

    launches: int = 1000
    elements: int = 1 << 20
    rounds: int = 1000
    transforms: tuple[int, ...] = (1, 4, 10, 14, 18, 20, 22, 24)
    distinct: int = 1 << 13
    sums_g1: tuple[int, ...] = (16, 20, 22, 24)
    sums_g2: tuple[int, ...] = (16, 20, 22)
    bad: tuple[int, ...] = (0, 1, 2, 33, 1000, 5000)
    """Not log2: numbers of points."""
    proofs: tuple[int, ...] = (16, 20, 22)
    verified: int = 16

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Sizes:
        known: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in values.items()}
        return cls(**known)


@dataclass(frozen=True)
class Setting:
    """Where the steps run: `make_device` in this process, `server` starts a GPU process."""

    make_device: Callable[[], Device]
    server: tuple[str, ...]
    sizes: Sizes


Step = Callable[[Setting], Figures]
"""Returns figures; raises `Wrong`, or whatever else goes wrong."""


def same(what: str, got: Any, right: Any) -> None:
    """Wrong unless they are equal."""
    if got != right:
        raise Wrong(f"{what} is wrong")


def ms(begun: float) -> float:
    """Milliseconds since a time.perf_counter()."""
    return round((time.perf_counter() - begun) * 1000, 3)
