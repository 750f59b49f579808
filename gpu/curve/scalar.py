"""Point arithmetic inside kernels; layouts and formulas are those of `bodies`, indexes count points.

add_affine(F, s, i, p, j, negate)    XYZZ s[i] += affine p[j], or -= when `negate`
add_sum(F, s, i, q, j)               XYZZ s[i] += XYZZ q[j], not the same place
double(F, s, i)                      XYZZ s[i] += s[i]
valid_affine(F, p, j, b, 0) -> bool  reduced, and infinity or on the curve y^2 = x^3 + b[0]
"""

from __future__ import annotations

from gpu.curve.bodies import ADD_AFFINE, ADD_SUM, DOUBLE, VALID
from gpu.field.compiled import intrinsic
from gpu.field.lowering import operation


@intrinsic
def add_affine(typingctx, field, s, i, p, j, negate):
    return operation(ADD_AFFINE, field, s, i, p, j, negate)


@intrinsic
def add_sum(typingctx, field, s, i, q, j):
    return operation(ADD_SUM, field, s, i, q, j)


@intrinsic
def double(typingctx, field, s, i):
    return operation(DOUBLE, field, s, i)


@intrinsic
def valid_affine(typingctx, field, p, j, b, k):
    return operation(VALID, field, p, j, b, k)
