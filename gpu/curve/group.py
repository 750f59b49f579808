"""Points between Python ints and kernel arrays, and what kernels need to know about G1 and G2 of a curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from gpu.curve import reference
from gpu.curve.params import Curve
from gpu.curve.reference import Group, Point
from gpu.field.kinds import KernelField, kernel_field


@dataclass(frozen=True)
class KernelGroup:
    """G1 or G2 of a curve as kernels see it. `b` is an array of one element, in Montgomery form."""

    curve: Curve
    kind: KernelField
    reference: Group
    b: np.ndarray

    @property
    def point_bytes(self) -> int:
        """Bytes of an affine point."""
        return 16 * self.kind.words

    def sums(self, count: int) -> np.ndarray:
        """`count` XYZZ points, all infinity."""
        return np.zeros(count * 4 * self.kind.words, np.uint64)

    def encode(self, points: Sequence[Point]) -> np.ndarray:
        """Affine points as a `.zkey` section holds them: uint8, Montgomery, infinity all zero."""
        raw = b"".join(
            bytes(self.point_bytes) if point is None else self._element(point[0]) + self._element(point[1])
            for point in points
        )
        return np.frombuffer(bytearray(raw), np.uint8)

    def decode(self, section: np.ndarray, index: int) -> Point:
        """The affine point at `index` of a section-like array."""
        at = index * self.point_bytes
        x, y = self._values(section.view(np.uint8)[at : at + self.point_bytes].tobytes())
        return None if x == y == self.reference.field.zero else (x, y)

    def to_affine(self, sums: np.ndarray, index: int = 0) -> Point:
        """The XYZZ point at `index` as Python ints."""
        width = 4 * self.kind.words
        x, y, zz, zzz = self._values(sums[index * width : (index + 1) * width].tobytes())
        f = self.reference.field
        if zz == f.zero:
            return None
        return f.mul(x, f.inv(zz)), f.mul(y, f.inv(zzz))

    def element(self, value: Any) -> np.ndarray:
        """One coordinate, in Montgomery form."""
        return np.frombuffer(bytearray(self._element(value)), np.uint64)

    def value(self, element: np.ndarray) -> Any:
        """The coordinate that an array of one element holds."""
        return self._values(element.tobytes())[0]

    def _element(self, value: Any) -> bytes:
        fp = self.curve.fp
        parts = (value,) if self.kind.degree == 1 else value
        return b"".join(fp.to_montgomery(part).to_bytes(fp.n_bytes, "little") for part in parts)

    def _values(self, raw: bytes) -> list[Any]:
        fp = self.curve.fp
        n = fp.n_bytes
        plain = [fp.from_montgomery(int.from_bytes(raw[i : i + n], "little")) for i in range(0, len(raw), n)]
        return plain if self.kind.degree == 1 else list(zip(plain[::2], plain[1::2], strict=True))


@cache
def kernel_g1(curve: Curve) -> KernelGroup:
    return _group(curve, 1, reference.g1(curve))


@cache
def kernel_g2(curve: Curve) -> KernelGroup:
    return _group(curve, 2, reference.g2(curve))


def _group(curve: Curve, degree: int, group: Group) -> KernelGroup:
    bare = KernelGroup(curve, kernel_field(curve.fp, degree), group, np.zeros(0, np.uint64))
    return replace(bare, b=bare.element(group.b))
