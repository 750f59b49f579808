"""The Lagrange basis of a coset of roots of unity at one point, in pieces that need nothing of each other."""

from __future__ import annotations

import numpy as np

from gpu.curve.params import Curve
from gpu.field.compiled import kernel
from gpu.field.kinds import kernel_field
from gpu.field.operations import mul, sub
from gpu.field.params import Field


def element(field: Field, value: int) -> np.ndarray:
    """One element as kernels take it: Montgomery form, one array of its words."""
    return np.frombuffer(bytearray(field.to_montgomery(value).to_bytes(field.n_bytes, "little")), np.uint64)


class LagrangeBasis:
    """L_j(tau) * `factor` for the coset first * <root> of `size` elements:
    x_j (tau^n - first^n) / (n first^n (tau - x_j)), x_j = first * root^j.

    tau must not lie in the coset (drawn at random it does with probability 2^-220).
    """

    def __init__(self, curve: Curve, size: int, tau: int, first: int = 1, factor: int = 1) -> None:
        r = curve.r
        self._fr = curve.fr
        self._first = first
        self._root = curve.roots[size.bit_length() - 1]
        self._tau = tau
        power = pow(first, size, r)
        self._factor = factor * (pow(tau, size, r) - power) * pow(size * power, -1, r) % r

    def values(self, begin: int, end: int, montgomery: bool) -> np.ndarray:
        """The values of indexes [begin, end), four words each, in Montgomery form or plain."""
        fr, n = self._fr, end - begin
        marker = kernel_field(fr).marker
        tau, t = element(fr, self._tau), np.zeros(fr.limbs, np.uint64)
        points, prefix = np.zeros(n * fr.limbs, np.uint64), np.zeros((n + 1) * fr.limbs, np.uint64)
        points[: fr.limbs] = element(fr, self._first * pow(self._root, begin, fr.modulus))
        prefix[: fr.limbs] = element(fr, 1)
        _prefix_products(marker, points, n, element(fr, self._root), tau, prefix, t)
        product = fr.from_montgomery(int.from_bytes(prefix[n * fr.limbs :].tobytes(), "little"))
        inverse = element(fr, pow(product, -1, fr.modulus))
        # A Montgomery product with a plain factor leaves Montgomery form.
        factor = self._factor if montgomery else fr.from_montgomery(self._factor)
        _values(marker, points, n, tau, prefix, inverse, element(fr, factor), t)
        return points


@kernel
def _prefix_products(F, points, n, root, tau, prefix, t):
    """points[i] = points[0] * root^i, prefix[i + 1] = prefix[i] * (tau - points[i])."""
    for i in range(n):
        if i:
            mul(F, points, i, points, i - 1, root, 0)
        sub(F, t, 0, tau, 0, points, i)
        mul(F, prefix, i + 1, prefix, i, t, 0)


@kernel
def _values(F, points, n, tau, prefix, inverse, factor, t):
    """points[i] = points[i] * factor / (tau - points[i]), with one inversion for all (Montgomery's trick).

    `inverse` is that of the last prefix product, and is used up; `prefix` becomes scratch.
    """
    for i in range(n - 1, -1, -1):
        sub(F, t, 0, tau, 0, points, i)
        mul(F, prefix, i, prefix, i, inverse, 0)
        mul(F, inverse, 0, inverse, 0, t, 0)
        mul(F, points, i, points, i, prefix, i)
        mul(F, points, i, points, i, factor, 0)
