"""The endomorphisms of G1 and G2, and the relations by which they tell who is a member. Standard library only.

phi(x, y) = (beta x, y) acts on G1 as multiplication by `lam`. psi, the p-power Frobenius seen on the twist, acts
on G2 as multiplication by p mod r. A point of the curve lies in the subgroup of order r when

    BN254 G1        always: the curve has r points
    BLS12-381 G1    phi(P) = -[x^2]P           since phi^2 + phi + 1 = 0, and x^4 - x^2 + 1 = r
    BLS12-381 G2    psi(Q) = [x]Q              Scott, "A note on group membership tests", ePrint 2021/1130
    BN254 G2        [x+1]Q + psi([x]Q) + psi^2([x]Q) = psi^3([2x]Q)    Dai, Lin, Zhao, Zhou, ePrint 2022/348

Each test is exact; `relation` has them as data. psi satisfies psi^2 - t psi + p = 0 on the whole twist, so the
order of a point with f(psi) = 0 divides the resultant of f with that polynomial, and the number of points of the
twist. The greatest common divisor of the two is r (tests/gpu/test_membership.py computes it), hence [r]Q = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from gpu.curve.params import Curve
from gpu.field.tower import Fp2, Pair


@dataclass(frozen=True)
class Endomorphisms:
    """`beta` and `lam` of phi on G1; psi(x, y) = (psi_x conj(x), psi_y conj(y)) on G2."""

    beta: int
    lam: int
    psi_x: Pair
    psi_y: Pair


@cache
def endomorphisms(curve: Curve) -> Endomorphisms:
    """The constants of both maps, derived from the curve's parameter x and its non-residue xi."""
    p, x, field = curve.p, curve.x, Fp2(curve.p)
    root = pow(-3, (p + 1) // 4, p)  # p = 3 mod 4 for both curves
    # Of the two cube roots of one, the one that goes with this lam; the tests compare phi(P) with [lam]P.
    beta = (root - 1) * pow(2, -1, p) % p
    lam = (36 * x**3 + 18 * x**2 + 6 * x + 1 if curve.d_twist else -(x**2)) % curve.r
    psi_x = field.power(curve.xi, (p - 1) // 3)
    psi_y = field.power(curve.xi, (p - 1) // 2)
    if not curve.d_twist:
        psi_x, psi_y = field.inv(psi_x), field.inv(psi_y)
    return Endomorphisms(beta, lam, psi_x, psi_y)


def relation(curve: Curve, degree: int) -> list[list[int]]:
    """c[j][k] such that a point P of the curve (degree 1) or the twist (degree 2) lies in the subgroup of order r
    exactly when the sum of [c[j][k] x^j] f^k(P) is infinity, f being phi or psi. Empty where every point does.
    """
    if degree == 1:
        return [] if curve.d_twist else [[0, 1], [], [1]]
    return [[1], [1, 1, 1, -2]] if curve.d_twist else [[0, 1], [-1]]
