"""What a body may know of the curve whose base field it works over."""

from __future__ import annotations

from typing import Any

from gpu.curve.params import CURVES, Curve
from gpu.field.bodies import load, store
from gpu.field.lowering import Machine, Operation


def curve_of(m: Machine) -> Curve:
    """The curve whose base field this is, or is extended from."""
    return next(curve for curve in CURVES.values() if curve.fp is m.kind.field)


def constant(m: Machine, value: Any) -> Any:
    """A pointer to a fixed element, given in plain form (an int, or a pair in Fp2). Only at the top of a body."""
    (pointer,) = m.temporaries(1)
    parts = value if m.kind.degree == 2 else (value,)
    store(m, pointer, [m.arith.constant(m.kind.field.to_montgomery(part)) for part in parts])
    return pointer


def _conjugate(m: Machine, d: Any, a: Any) -> None:
    """d = the p-power Frobenius of a: a0 - a1 u in Fp2, a itself in the prime field."""
    first, *rest = load(m, a)
    store(m, d, [first, *(m.arith.neg(part) for part in rest)])


CONJUGATE = Operation("conj", _conjugate, (1, 1))
