"""The group law on Python ints, for G1 and G2 alike: the oracle of the tests, and what own verification uses.

A point is (x, y) or None for infinity; x and y are Fp ints (G1) or Fp2 pairs (G2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from gpu.curve.endomorphism import endomorphisms, relation
from gpu.curve.params import Curve
from gpu.field.tower import Fp, Fp2

Point = tuple[Any, Any] | None


class Group:
    """y^2 = x^3 + b over `field`; `order` is that of the prime subgroup.

    `x` is the curve's parameter; `relation` tells who is a member (`gpu.curve.endomorphism`), for the endomorphism
    that multiplies the conjugates of x and y by `factors`.
    """

    def __init__(
        self,
        field: Fp,
        b: Any,
        order: int,
        generator: Point,
        x: int,
        relation: Sequence[Sequence[int]],
        factors: tuple[Any, Any],
    ) -> None:
        self.field = field
        self.b = b
        self.order = order
        self.generator = generator
        self._x = x
        self._relation = relation
        self._factors = factors

    def on_curve(self, point: Point) -> bool:
        if point is None:
            return True
        f, (x, y) = self.field, point
        return f.mul(y, y) == f.add(f.mul(f.mul(x, x), x), self.b)

    def in_subgroup(self, point: Point) -> bool:
        """Whether a point is on the curve and has order r, or is infinity."""
        if not self.on_curve(point):
            return False
        total: Point = None
        for row in reversed(self._relation):
            multiple = self._multiple(total, abs(self._x))
            total = multiple if self._x > 0 else self.neg(multiple)
            image = point
            for count in row:
                for _ in range(abs(count)):
                    total = self.add(total, image if count > 0 else self.neg(image))
                image = self.image(image)
        return total is None

    def image(self, point: Point) -> Point:
        """The endomorphism applied to a point."""
        if point is None:
            return None
        f = self.field
        return f.mul(f.conj(point[0]), self._factors[0]), f.mul(f.conj(point[1]), self._factors[1])

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
        """[scalar]point, not reduced, in Jacobian coordinates (EFD: shortw/jacobian-0, dbl-2009-l and madd): one
        inversion instead of one a step.
        """
        if point is None or scalar == 0:
            return None
        f = self.field
        sum_ = (*point, f.one)
        for bit in bin(scalar)[3:]:
            sum_ = self._double(sum_)
            if bit == "1":
                sum_ = self._add_affine(sum_, point)
        if sum_[2] == f.zero:
            return None
        inverse = f.inv(sum_[2])
        square = f.mul(inverse, inverse)
        return f.mul(sum_[0], square), f.mul(sum_[1], f.mul(square, inverse))

    def _double(self, s: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        """Infinity (z = 0) and points of order two come out with z = 0."""
        f, (x, y, z) = self.field, s
        a, b = f.mul(x, x), f.mul(y, y)
        c, e = f.mul(b, b), f.scale(a, 3)
        d = f.scale(f.mul(x, b), 4)
        x3 = f.sub(f.mul(e, e), f.scale(d, 2))
        return x3, f.sub(f.mul(e, f.sub(d, x3)), f.scale(c, 8)), f.scale(f.mul(y, z), 2)

    def _add_affine(self, s: tuple[Any, Any, Any], point: tuple[Any, Any]) -> tuple[Any, Any, Any]:
        f, (x, y, z) = self.field, s
        if z == f.zero:
            return (*point, f.one)
        zz = f.mul(z, z)
        h = f.sub(f.mul(point[0], zz), x)
        r = f.sub(f.mul(point[1], f.mul(z, zz)), y)
        if h == f.zero:
            return self._double(s) if r == f.zero else (f.one, f.one, f.zero)
        hh = f.mul(h, h)
        hhh, v = f.mul(h, hh), f.mul(x, hh)
        x3 = f.sub(f.sub(f.mul(r, r), hhh), f.scale(v, 2))
        return x3, f.sub(f.mul(r, f.sub(v, x3)), f.mul(y, hhh)), f.mul(z, h)

    def msm(self, points: Iterable[Point], scalars: Iterable[int]) -> Point:
        """The sum of [scalar]point, from the definition."""
        out: Point = None
        for point, scalar in zip(points, scalars, strict=True):
            out = self.add(out, self.mul(point, scalar))
        return out


@cache
def g1(curve: Curve) -> Group:
    maps = endomorphisms(curve)
    return Group(Fp(curve.p), curve.b, curve.r, curve.g1, curve.x, relation(curve, 1), (maps.beta, 1))


@cache
def g2(curve: Curve) -> Group:
    maps = endomorphisms(curve)
    return Group(Fp2(curve.p), curve.b2, curve.r, curve.g2, curve.x, relation(curve, 2), (maps.psi_x, maps.psi_y))
