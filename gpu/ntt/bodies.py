"""The two butterflies as LLVM functions: Gentleman-Sande (DIF) and Cooley-Tukey (DIT)."""

from __future__ import annotations

from typing import Any

from gpu.field import limbs as emit
from gpu.field.bodies import load, store
from gpu.field.lowering import Machine, Operation


def _dif(m: Machine, x: Any, y: Any, w: Any) -> None:
    """(x, y) = (x + y, (x - y) w)."""
    b, field = m.builder, m.kind.field
    (left,), (right,), (twiddle,) = load(m, x), load(m, y), load(m, w)
    store(m, x, [emit.add(b, field, left, right)])
    store(m, y, [emit.mul(b, field, emit.sub(b, field, left, right), twiddle)])


def _dit(m: Machine, x: Any, y: Any, w: Any) -> None:
    """(x, y) = (x + y w, x - y w)."""
    b, field = m.builder, m.kind.field
    (left,), (right,), (twiddle,) = load(m, x), load(m, y), load(m, w)
    scaled = emit.mul(b, field, right, twiddle)
    store(m, x, [emit.add(b, field, left, scaled)])
    store(m, y, [emit.sub(b, field, left, scaled)])


DIF = Operation("butterfly_dif", _dif, (1, 1, 1))
DIT = Operation("butterfly_dit", _dit, (1, 1, 1))
