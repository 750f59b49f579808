"""Points that no honest key holds."""

from __future__ import annotations

from typing import Any

from gpu.curve.group import KernelGroup
from gpu.curve.reference import Point
from gpu.field.tower import Fp2


def _root(field: Any, value: Any) -> Any | None:
    """A square root in Fp or Fp2 (p = 3 mod 4), or None."""
    p = field.p
    if not isinstance(field, Fp2):
        root = pow(value, (p + 1) // 4, p)
        return root if root * root % p == value else None
    norm = pow(value[0] ** 2 + value[1] ** 2, (p + 1) // 4, p)
    for sign in (norm, -norm):
        half = (value[0] + sign) * pow(2, -1, p) % p
        first = pow(half, (p + 1) // 4, p)
        if first and first * first % p == half:
            root = first, value[1] * pow(2 * first, -1, p) % p
            if field.mul(root, root) == value:
                return root
    return None


def on_curve(group: KernelGroup, number: int) -> Point:
    """A point on the curve, a different one for each number, most probably outside the subgroup."""
    reference = group.reference
    field = reference.field
    for k in range(1000 * number, 1000 * number + 200):
        x = k if group.kind.degree == 1 else (k, 1)
        y = _root(field, field.add(field.mul(field.mul(x, x), x), reference.b))
        if y is not None:
            return x, y
    raise AssertionError("none found")


def outside_subgroup(group: KernelGroup) -> Point:
    """A point on the curve that is not in the subgroup of order r."""
    for number in range(200):
        point = on_curve(group, number)
        if not group.reference.in_subgroup(point):
            return point
    raise AssertionError("none found")
