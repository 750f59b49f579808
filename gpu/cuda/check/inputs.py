"""Inputs whose right answers follow from how they are made, at any size, without a second prover.

Points are known multiples of the generator, so that a sum's answer is one multiple of it. Vectors for transforms are
zero but for a few places, so that each value of the answer has a short formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu.cuda.device import Buffer, Device, Span
from gpu.curve.group import KernelGroup
from gpu.curve.params import Curve
from gpu.curve.reference import Point

SCALAR_BYTES = 32


@dataclass(frozen=True)
class Tile:
    """Points [first + i step]G for i < n in `.zkey` form, to be repeated as often as wanted."""

    group: KernelGroup
    n: int
    first: int
    step: int
    points: np.ndarray

    def factor(self, i: int) -> int:
        return (self.first + i % self.n * self.step) % self.group.curve.r

    def repeated(self, n: int) -> np.ndarray:
        """`n` points, on the host."""
        return np.resize(self.points.reshape(self.n, -1), (n, self.group.point_bytes)).reshape(-1)

    def fill(self, device: Device, buffer: Buffer | Span, n: int) -> None:
        """`n` points, on the device."""
        for begin in range(0, n, self.n):
            count = min(self.n, n - begin)
            at = begin * self.group.point_bytes
            device.upload(buffer, self.points[: count * self.group.point_bytes], at)

    def sum(self, scalars: np.ndarray) -> Point:
        """What the sum of scalars[i] * points[i] must be; `scalars` as uint32, eight to a scalar."""
        words = scalars.reshape(-1, 8).astype(np.uint64)
        padding = -len(words) % self.n
        folded = np.concatenate([words, np.zeros((padding, 8), np.uint64)]).reshape(-1, self.n, 8).sum(axis=0)
        total = sum(
            self.factor(i) * sum(int(word) << (32 * k) for k, word in enumerate(row)) for i, row in enumerate(folded)
        )
        return multiple(self.group, total)


def make_tile(group: KernelGroup, n: int, rng: np.random.Generator) -> Tile:
    """By additions in Python ints: some thousand a second."""
    first, step = (int.from_bytes(rng.bytes(31), "little") for _ in range(2))
    points, difference = [multiple(group, first)], multiple(group, step)
    for _ in range(n - 1):
        points.append(group.reference.add(points[-1], difference))
    return Tile(group, n, first, step, group.encode(points))


def multiple(group: KernelGroup, factor: int) -> Point:
    return group.reference.mul(group.reference.generator, factor)


def random_scalars(n: int, rng: np.random.Generator) -> np.ndarray:
    """Below 2^253, which is less than both curves' orders; uint32, eight each."""
    out = rng.integers(0, 1 << 32, (n, 8), np.uint32)
    out[:, 7] &= 0x1FFFFFFF
    return out.reshape(-1)


def scalars_of(values: Sequence[int]) -> np.ndarray:
    """These scalars, plain."""
    return np.frombuffer(bytearray(b"".join(value.to_bytes(SCALAR_BYTES, "little") for value in values)), np.uint32)


@dataclass(frozen=True)
class Impulses:
    """The vector that is `values[k]` at `places[k]` and zero elsewhere."""

    curve: Curve
    size: int
    places: tuple[int, ...]
    values: tuple[int, ...]

    def vector(self) -> np.ndarray:
        """In Montgomery form, uint32, eight a value."""
        out = np.zeros((self.size, 8), np.uint32)
        for place, value in zip(self.places, self.values, strict=True):
            out[place] = scalars_of([self.curve.fr.to_montgomery(value)])
        return out.reshape(-1)

    def on_odd_coset(self, j: int) -> int:
        """The polynomial with these values on the domain, at the j-th point y of the odd coset: since y^n = -1, the
        Lagrange polynomial of the k-th root w^k is -2 w^k / (n (y - w^k)) there.
        """
        r, log_n = self.curve.r, self.size.bit_length() - 1
        root, double = self.curve.roots[log_n], self.curve.roots[log_n + 1]
        y = double * pow(root, j, r) % r
        total = 0
        for place, value in zip(self.places, self.values, strict=True):
            w = pow(root, place, r)
            total += value * w * pow(y - w, -1, r)
        return total * -2 * pow(self.size, -1, r) % r


def random_impulses(curve: Curve, size: int, rng: np.random.Generator, count: int = 3) -> Impulses:
    places = rng.choice(size, min(count, size), replace=False)
    values = tuple(int.from_bytes(rng.bytes(31), "little") for _ in places)
    return Impulses(curve, size, tuple(map(int, places)), values)
