"""The evaluation domain of one size: its tables, and the one transform that Groth16 makes of it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gpu.curve.params import Curve
from gpu.field.kinds import kernel_field
from gpu.ntt.scalar import fill_powers, reorder, to_coset


class Domain:
    """The 2^k-th roots of unity of a curve's scalar field, and snarkjs' odd coset: the 2^(k+1)-th roots that
    are no 2^k-th ones.
    """

    def __init__(self, curve: Curve, size: int) -> None:
        log_n = size.bit_length() - 1
        self.size = size
        self._fr = curve.fr
        self.kind = kernel_field(curve.fr)
        root, coset = curve.roots[log_n], curve.roots[log_n + 1]
        self._forward = self._powers(1, root, max(size // 2, 1))
        self._inverse = self._powers(1, pow(root, -1, curve.r), max(size // 2, 1))
        # The inverse transform leaves bit-reversed order, so its 1/n and the coset's shift are kept in that
        # order.
        plain = self._powers(pow(size, -1, curve.r), coset, size)
        self._shift = np.empty_like(plain)
        reorder(self.kind.marker, self._shift, plain, log_n)

    def element(self, value: int) -> np.ndarray:
        """One element of the scalar field, in Montgomery form."""
        raw = self._fr.to_montgomery(value).to_bytes(self._fr.n_bytes, "little")
        return np.frombuffer(bytearray(raw), np.uint64)

    def to_odd_coset(self, x: np.ndarray) -> None:
        """In place: values on the domain become values of the same polynomial on the odd coset, in
        natural order.
        """
        to_coset(self.kind.marker, x, self._inverse, self._shift, self._forward, self.size)

    def _powers(self, first: int, base: int, count: int) -> np.ndarray:
        out = np.zeros(count * self.kind.words, np.uint64)
        out[: self.kind.words] = self.element(first)
        fill_powers(self.kind.marker, out, count, self.element(base))
        return out


@lru_cache(maxsize=4)
def domain(curve: Curve, size: int) -> Domain:
    """The domain of this size, made once: its tables cost as much as one transform."""
    return Domain(curve, size)
