"""The compiled pairing as host code calls it: points and values as arrays, products of pairings as answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from gpu.curve.group import kernel_g1, kernel_g2
from gpu.curve.params import Curve
from gpu.curve.reference import Point
from gpu.field.kinds import kernel_field
from gpu.field.tower import Dozen
from gpu.pairing.exponent import non_adjacent
from gpu.pairing.scalar import pairing_product
from gpu.pairing.tower import POWERS_OF_W


class CompiledPairing:
    """e: G1 x G2 -> GT of one curve, to a fixed power prime to r. Points must be in their subgroups.

    A value of Fp12 is an array of six Fp2 elements (uint64, Montgomery form, order of `tower`). Affine points
    are those of `KernelGroup.encode`, as uint64.
    """

    def __init__(self, curve: Curve) -> None:
        self.curve = curve
        self.one, self.two = kernel_g1(curve), kernel_g2(curve)
        self._fp2 = kernel_field(curve.fp, 2)
        self._loop = np.array(non_adjacent(6 * curve.x + 2 if curve.d_twist else -curve.x)[1:], np.int8)
        self.unit = np.concatenate([self.two.element(value) for value in [(1, 0)] + [(0, 0)] * 5])

    def miller(self, p: np.ndarray, q: np.ndarray, begin: int, end: int) -> np.ndarray:
        """The product of the Miller loops of the pairs [begin, end), not yet exponentiated."""
        return self._run(p, q, begin, end, self.unit, 0, False)

    def final(self, p: np.ndarray, q: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The product of all pairs and of all `values` that `miller` gave (in a row), finally exponentiated."""
        return self._run(p, q, 0, p.size // self._fp2.words, values, values.size // self.unit.size, True)

    def quotient(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """a / b for two values that `final` gave: there, an inverse is a conjugate, whose odd half is negated."""
        field, words, inverse = self.two.reference.field, self._fp2.words, b.copy()
        for at in range(3 * words, 6 * words, words):
            inverse[at : at + words] = self.two.element(field.neg(self.two.value(b[at : at + words])))
        nothing = self.unit[:0]
        return self._run(nothing, nothing, 0, 0, np.concatenate([a, inverse]), 2, False)

    def _run(
        self, p: np.ndarray, q: np.ndarray, begin: int, end: int, values: np.ndarray, count: int, exponentiate: bool
    ) -> np.ndarray:
        f = self.unit.copy()
        sums = np.empty(3 * (end - begin) * self._fp2.words, np.uint64)
        marker, loop = self._fp2.marker, self._loop
        pairing_product(marker, p, q, begin, end, loop, sums, values, count, exponentiate, f)
        return f

    def value(self, pairs: Sequence[tuple[Point, Point]]) -> Dozen:
        """The product of e(P, Q), as the reference writes it, to the power that `exponent` names."""
        element = self._product(pairs)
        group = self.two
        found: list[tuple[int, int]] = [(0, 0)] * 6
        for i, k in enumerate(POWERS_OF_W):
            found[k] = group.value(element[i * self._fp2.words : (i + 1) * self._fp2.words])
        return tuple(found)

    def is_one(self, pairs: Sequence[tuple[Point, Point]]) -> bool:
        """Whether the product of e(P, Q) is one."""
        return bool(np.array_equal(self._product(pairs), self.unit))

    def _product(self, pairs: Sequence[tuple[Point, Point]]) -> np.ndarray:
        p, q = ([pair[which] for pair in pairs] for which in (0, 1))
        return self.final(self.one.encode(p).view(np.uint64), self.two.encode(q).view(np.uint64), self.unit)


@cache
def compiled_pairing(curve: Curve) -> CompiledPairing:
    return CompiledPairing(curve)
