"""The transform by its definition, on Python ints: the oracle of the tests."""

from __future__ import annotations

from collections.abc import Sequence


def evaluate(coefficients: Sequence[int], root: int, shift: int, r: int) -> list[int]:
    """The polynomial's values at shift * root^i for i = 0..n-1, mod r."""
    out, point = [], shift
    for _ in coefficients:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * point + coefficient) % r
        out.append(value)
        point = point * root % r
    return out
