"""Points and scalars that multi-scalar multiplications are tested with."""

from __future__ import annotations

import random

import numpy as np

from gpu.curve.group import KernelGroup
from gpu.curve.reference import Point

KINDS = ("mixed", "zeros", "ones", "bits", "minus one", "one value", "small", "random")


def palette(group: KernelGroup, rng: random.Random) -> list[tuple[int, Point]]:
    """A few points and their discrete logarithms: some twice, one with its opposite, and infinity."""
    reference, r = group.reference, group.curve.r
    logs = [rng.randrange(1, 1 << 20) for _ in range(4)]
    return [(k, reference.mul(reference.generator, k)) for k in (*logs, *logs[:2], r - logs[0], 0)]


def scalars(kind: str, order: int, n: int, rng: random.Random) -> list[int]:
    """n scalars of a kind: what witnesses are full of, and what is hard for windows and buckets."""
    r, same = order, rng.randrange(order)
    edges = (0, 1, 2, r - 1, r - 2, r // 2, r // 2 + 1, 1 << (r.bit_length() - 1))
    draw = {
        "mixed": lambda: rng.choice([*edges, rng.randrange(r)]),
        "zeros": lambda: 0,
        "ones": lambda: 1,
        "bits": lambda: rng.randrange(2),
        "minus one": lambda: r - 1,
        "one value": lambda: same,
        "small": lambda: rng.randrange(300),
        "random": lambda: rng.randrange(r),
    }[kind]
    return [draw() for _ in range(n)]


def unaligned(section: np.ndarray) -> np.ndarray:
    """The same bytes at an odd address, read-only, as a mapped file may have them."""
    out = np.zeros(len(section) + 1, np.uint8)[1:]
    out[:] = section
    out.flags.writeable = False
    return out
