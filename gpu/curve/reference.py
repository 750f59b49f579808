"""The group law on Python ints, for G1 and G2 alike: the oracle of the tests, and what own verification uses.

A point is (x, y) or None for infinity; x and y are Fp ints (G1) or Fp2 pairs (G2).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from gpu.curve.params import Curve
from gpu.field.tower import Fp, Fp2

Point = tuple[Any, Any] | None


class Group:
    """y^2 = x^3 + b over `field`; `order` is that of the prime subgroup."""

    def __init__(self, field: Fp, b: Any, order: int, generator: Point) -> None:
        self.field = field
        self.b = b
        self.order = order
        self.generator = generator

    def on_curve(self, point: Point) -> bool:
        if point is None:
            return True
        f, (x, y) = self.field, point
        return f.mul(y, y) == f.add(f.mul(f.mul(x, x), x), self.b)

    def in_subgroup(self, point: Point) -> bool:
        return self.on_curve(point) and self._multiple(point, self.order) is None

    def neg(self, point: Point) -> Point:
        return None if point is None else (point[0], self.field.neg(point[1]))

    def add(self, a: Point, b: Point) -> Point:
        """The affine law with every case written out."""
        if a is None or b is None:
            return b if a is None else a
        f = self.field
        if a[0] == b[0]:
            if a[1] != b[1] or a[1] == f.zero:
                return None
            slope = f.mul(f.scale(f.mul(a[0], a[0]), 3), f.inv(f.scale(a[1], 2)))
        else:
            slope = f.mul(f.sub(b[1], a[1]), f.inv(f.sub(b[0], a[0])))
        x = f.sub(f.sub(f.mul(slope, slope), a[0]), b[0])
        return x, f.sub(f.mul(slope, f.sub(a[0], x)), a[1])

    def mul(self, point: Point, scalar: int) -> Point:
        """[scalar]point, the scalar reduced mod the order."""
        return self._multiple(point, scalar % self.order)

    def _multiple(self, point: Point, scalar: int) -> Point:
        out: Point = None
        for bit in bin(scalar)[2:]:
            out = self.add(out, out)
            if bit == "1":
                out = self.add(out, point)
        return out

    def msm(self, points: Iterable[Point], scalars: Iterable[int]) -> Point:
        """The sum of [scalar]point, from the definition."""
        out: Point = None
        for point, scalar in zip(points, scalars, strict=True):
            out = self.add(out, self.mul(point, scalar))
        return out


@cache
def g1(curve: Curve) -> Group:
    return Group(Fp(curve.p), curve.b, curve.r, curve.g1)


@cache
def g2(curve: Curve) -> Group:
    return Group(Fp2(curve.p), curve.b2, curve.r, curve.g2)
