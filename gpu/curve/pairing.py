"""Our own optimal ate pairing, in Python ints, for both curves: some 60 ms a product, no compilation, no
dependency.

Vercauteren, "Optimal pairings" (IEEE TIT 2010). Affine Miller steps on the twist; the final exponent is (p^12
- 1)/r to the letter. The prover checks its own proofs with this; the controller checks them with other
people's code (`groth16.verify`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from gpu.curve.params import Curve
from gpu.curve.reference import Point
from gpu.field.tower import Dozen, Fp12, Pair


class Pairing:
    """e: G1 x G2 -> GT of one curve. Points must be in their subgroups; infinity pairs to one."""

    def __init__(self, curve: Curve) -> None:
        self.curve = curve
        self.p = curve.p
        self.fp12 = Fp12(curve.p, curve.xi)
        self.fp2 = self.fp12.fp2
        self.hard_exponent = (self.p**4 - self.p**2 + 1) // curve.r
        self.loop = bin(6 * curve.x + 2 if curve.d_twist else -curve.x)[3:]
        self._twist_x = self.fp2.power(curve.xi, (self.p - 1) // 3)
        self._twist_y = self.fp2.power(curve.xi, (self.p - 1) // 2)

    def product(self, pairs: Sequence[tuple[Point, Point]]) -> Dozen:
        """The product of e(P, Q) over `pairs`."""
        return self.final(self.miller(pairs))

    def is_one(self, pairs: Sequence[tuple[Point, Point]]) -> bool:
        return self.product(pairs) == self.fp12.one

    def miller(self, pairs: Sequence[tuple[Point, Point]]) -> Dozen:
        """The Miller loops of all pairs with one squaring a step."""
        real = [(p, q) for p, q in pairs if p is not None and q is not None]
        f = self.fp12.one
        sums = [q for _, q in real]
        for bit in self.loop:
            f = self.fp12.square(f)
            for i, (p, q) in enumerate(real):
                f, sums[i] = self._step(f, sums[i], sums[i], p)
                if bit == "1":
                    f, sums[i] = self._step(f, sums[i], q, p)
        if not self.curve.d_twist:
            return self.fp12.conj(f)  # the BLS parameter is negative
        for i, (p, q) in enumerate(real):
            once = self._frobenius(q)
            twice = self._frobenius(once)
            f, sums[i] = self._step(f, sums[i], once, p)
            f, sums[i] = self._step(f, sums[i], (twice[0], self.fp2.neg(twice[1])), p)
        return f

    def final(self, f: Dozen) -> Dozen:
        """f^((p^12 - 1)/r): the easy part by Frobenius maps, the hard part by plain exponentiation."""
        fp12 = self.fp12
        f = fp12.mul(fp12.conj(f), fp12.inv(f))
        f = fp12.mul(fp12.frobenius2(f), f)
        return fp12.power(f, self.hard_exponent)

    def _frobenius(self, q: tuple[Pair, Pair]) -> tuple[Pair, Pair]:
        """The p-power Frobenius seen on the twist."""
        f = self.fp2
        return f.mul(f.conj(q[0]), self._twist_x), f.mul(f.conj(q[1]), self._twist_y)

    def _step(
        self, f: Dozen, t: tuple[Pair, Pair], q: tuple[Pair, Pair], at: tuple[int, int]
    ) -> tuple[Dozen, tuple[Pair, Pair]]:
        """f * l(at) and t + q, where l is the line through t and q (the tangent when they are one point)."""
        k = self.fp2
        if t is q or t == q:
            slope = k.mul(k.scale(k.mul(t[0], t[0]), 3), k.inv(k.scale(t[1], 2)))
        else:
            slope = k.mul(k.sub(q[1], t[1]), k.inv(k.sub(q[0], t[0])))
        x = k.sub(k.sub(k.mul(slope, slope), t[0]), q[0])
        y = k.sub(k.mul(slope, k.sub(t[0], x)), t[1])
        constant = k.sub(k.mul(slope, t[0]), t[1])
        by_x = k.scale(slope, -at[0])
        zero, by_y = k.zero, (at[1], 0)
        # Untwisted, a D-twist's line is y - slope*x*w + c*w^3; an M-twist's, times w^3, is c - slope*x*w^2 +
        # y*w^3. The factor w^3 lies in Fp4 and vanishes in the final exponentiation.
        if self.curve.d_twist:
            line: Dozen = (by_y, by_x, zero, constant, zero, zero)
        else:
            line = (constant, zero, by_x, by_y, zero, zero)
        return self.fp12.mul(f, line), (x, y)


@cache
def pairing(curve: Curve) -> Pairing:
    return Pairing(curve)
