"""Steps of Miller's loop as LLVM functions: the point moves, and the line through it, at P, goes into f.

T is homogeneous projective on the twist (x = X/Z, y = Y/Z). Costello, Lange, Naehrig, "Faster pairing
computations on curves with high-degree twists" (PKC 2010), as Aranha, Karabina, Longa, Gebotys, Lopez,
"Faster explicit formulas for computing pairings over ordinary curves" (EUROCRYPT 2011) write it, with the
halvings scaled away. With slope l and c = l x - y, an untwisted D-twist's line is y - l x w + c w^3; an
M-twist's, times w^3, is c - l x w^2 + y w^3. Each line is scaled by a factor in Fp2, which vanishes in the
final exponentiation.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpu.curve.twist import constant, curve_of
from gpu.field.limbs import I64
from gpu.field.lowering import Machine, Operation
from gpu.field.tower import Fp2
from gpu.pairing.tower import Steps, block, parts


def _sparse(m: Machine, d: Any, a: Any, low: Any, high: Any) -> None:
    """d = a (low + high v) in Fp6 by five products. `d` is not `a`."""
    f = Steps(m)
    v0, v1, s, t = m.temporaries(4)
    a0, a1, a2 = parts(m, a, 3)
    d0, d1, d2 = parts(m, d, 3)
    f.mul(v0, a0, low)
    f.mul(v1, a1, high)
    f.add(s, a0, a1)
    f.add(t, low, high)
    f.mul(s, s, t)
    f.sub(s, s, v0)
    f.sub(d1, s, v1)
    f.mul(s, a2, high)
    f.mul_xi(s, s)
    f.add(d0, s, v0)
    f.mul(s, a2, low)
    f.add(d2, s, v1)


SPARSE = Operation("six_sparse", _sparse, (3, 3, 1, 1))


def _by_line(m: Machine, f: Any, by_y: Any, by_x: Any, constant: Any) -> None:
    """f *= by_y + by_x w + constant w^3 (D-twist) or constant + by_x w^2 + by_y w^3 (M-twist): 13 products."""
    step = Steps(m)
    low, high, both = (block(m, 3) for _ in range(3))
    (s,) = m.temporaries(1)
    f0, f1 = f, m.element(f, 3)
    step.six_add(both, f0, f1)
    if curve_of(m).d_twist:
        for target, value in zip(parts(m, low, 3), parts(m, f0, 3), strict=True):
            step.mul(target, value, by_y)
        m.call(SPARSE, high, f1, by_x, constant)
        step.add(s, by_y, by_x)
        m.call(SPARSE, f1, both, s, constant)
    else:
        m.call(SPARSE, low, f0, constant, by_x)
        for target, value in zip(parts(m, high, 3), parts(m, f1, 3), strict=True):
            step.mul(target, value, by_y)
        step.mul_v(high, high)
        step.add(s, by_x, by_y)
        m.call(SPARSE, f1, both, constant, s)
    step.six_sub(f1, f1, low)
    step.six_sub(f1, f1, high)
    step.mul_v(high, high)
    step.six_add(f0, low, high)


BY_LINE = Operation("by_line", _by_line, (6, 1, 1, 1))


def _double(m: Machine, f: Any, t: Any, p: Any) -> None:
    """f *= the tangent at T, at P = (x, y) (two elements of Fp in a row); T = 2 T."""
    s, curve = Steps(m), curve_of(m)
    b3 = constant(m, Fp2(curve.p).scale(curve.b2, 3))
    a, b, c, e, g, h, k = m.temporaries(7)
    x, y, z = parts(m, t, 3)
    s.mul(a, x, y)
    s.sqr(b, y)
    s.sqr(c, z)
    s.mul(e, c, b3)  # E = 3 b' Z^2
    s.add(h, y, z)
    s.sqr(h, h)
    s.sub(h, h, b)
    s.sub(h, h, c)  # H = 2 Y Z
    s.sqr(k, x)
    s.add(g, k, k)
    s.add(k, k, g)  # 3 X^2
    # The line, times H: H y - 3 X^2 x w + (B - E) w^3.
    s.scale(g, h, _y(m, p))
    s.neg(k, k)
    s.scale(k, k, p)
    s.sub(c, b, e)
    m.call(BY_LINE, f, g, k, c)
    # T, times 4 for the halves: X = 2 X Y (B - 3 E), Y = (B + 3 E)^2 - 12 E^2, Z = 4 B H.
    s.add(k, e, e)
    s.add(g, k, e)  # 3 E
    s.sub(c, b, g)
    s.add(a, a, a)
    s.mul(x, a, c)
    s.add(g, g, b)
    s.sqr(g, g)
    s.sqr(k, k)  # 4 E^2
    s.add(c, k, k)
    s.add(c, c, k)
    s.sub(y, g, c)
    s.mul(z, b, h)
    s.add(z, z, z)
    s.add(z, z, z)


def _add(m: Machine, f: Any, t: Any, q: Any, p: Any, negate: Any) -> None:
    """f *= the line through T and the affine Q, or -Q when `negate`, at P; T moves there. T and Q are never equal
    or opposite inside the loop: Q has order r and T = kQ for 1 < k < r - 1.
    """
    s = Steps(m)
    o, n, c, d, e, g, h, y2 = m.temporaries(8)
    x, y, z = parts(m, t, 3)
    x2 = q
    s.copy(y2, m.element(q, 1))
    with m.builder.if_then(negate):
        s.neg(y2, y2)
    s.mul(o, y2, z)
    s.sub(o, y, o)  # theta
    s.mul(n, x2, z)
    s.sub(n, x, n)  # lambda
    # The line, times lambda: lambda y - theta x w + (theta x2 - lambda y2) w^3.
    s.mul(c, o, x2)
    s.mul(d, n, y2)
    s.sub(c, c, d)
    s.scale(d, n, _y(m, p))
    s.neg(e, o)
    s.scale(e, e, p)
    m.call(BY_LINE, f, d, e, c)
    s.sqr(c, o)
    s.mul(c, c, z)
    s.sqr(d, n)
    s.mul(e, d, n)
    s.mul(g, x, d)
    s.add(h, e, c)
    s.sub(h, h, g)
    s.sub(h, h, g)
    s.mul(x, n, h)
    s.sub(g, g, h)
    s.mul(g, g, o)
    s.mul(y, y, e)
    s.sub(y, g, y)
    s.mul(z, z, e)


def _y(m: Machine, p: Any) -> Any:
    return m.builder.gep(p, [ir.Constant(I64, m.kind.field.limbs)])


def _tail(m: Machine, f: Any, t: Any, q: Any, p: Any) -> None:
    """What follows the loop for one pair: for BN curves the lines through the Frobenius images pi(Q) and
    -pi^2(Q) (Vercauteren 2010), for BLS curves nothing.
    """
    curve, s = curve_of(m), Steps(m)
    if not curve.d_twist:
        return
    field, image = Fp2(curve.p), block(m, 2)
    factors = [constant(m, field.power(curve.xi, (curve.p - 1) // k)) for k in (3, 2)]
    for source, minus in ((q, 0), (image, 1)):
        for k in range(2):
            s.conj(m.element(image, k), m.element(source, k))
            s.mul(m.element(image, k), m.element(image, k), factors[k])
        m.call(ADD, f, t, image, p, ir.Constant(ir.IntType(1), minus))


def _finish(m: Machine, f: Any) -> None:
    """What follows the loop for f: its inverse, up to the final exponentiation, where the parameter is negative."""
    if curve_of(m).x < 0:
        Steps(m).twelve_conj(f, f)


DOUBLE = Operation("line_double", _double, (6, 3, 1))
ADD = Operation("line_add", _add, (6, 3, 2, 1), flag=True)
TAIL = Operation("miller_tail", _tail, (6, 3, 2, 1))
FINISH = Operation("miller_finish", _finish, (6,))
