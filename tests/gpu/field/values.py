"""What the tests of both back ends share: their fields, values that break careless code, and the kernels that call
single operations.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from gpu.field import ifma
from gpu.field.compiled import kernel
from gpu.field.kinds import FIELDS, KernelField
from gpu.field.operations import add, canonical, copy, equal, is_zero, mul, neg, select, sqr, sub
from gpu.field.tower import Fp, Fp2

KINDS = list(FIELDS.values())
N_RESULTS = 8


def name(kind: KernelField) -> str:
    return f"{kind.field.name}-{kind.degree}-{'ifma' if kind.lanes > 1 else 'scalar'}"


def limit(kind: KernelField) -> int:
    """What every coefficient in memory is below."""
    return int((ifma.STORED if kind.lanes > 1 else Fraction(1)) * kind.field.modulus)


def edges(kind: KernelField) -> list[int]:
    """Values in memory at which carries, borrows and reductions change their minds; for eight lanes up to the bound."""
    p, r = kind.field.modulus, kind.r
    some = [0, 1, 2, p - 1, p - 2, (p - 1) // 2, r, p - (1 << 64), (1 << 64) - 1, (1 << 52) - 1, 1 << 52]
    if kind.lanes > 1:
        some += [p, p + 1, p + p // 20, p + p // 10 - 1, limit(kind) - 1, limit(kind) - 2]
    return some


def coefficients(kind: KernelField) -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from(edges(kind)), st.integers(0, limit(kind) - 1))


def oracle(kind: KernelField) -> Any:
    return Fp(kind.field.modulus) if kind.degree == 1 else Fp2(kind.field.modulus)


def element(kind: KernelField, values: list[int], index: int) -> Any:
    """The element at `index` of coefficients in a row, as the oracle has it."""
    p, d = kind.field.modulus, kind.degree
    parts = tuple(value % p for value in values[index * d : index * d + d])
    return parts[0] if d == 1 else parts


@kernel
def every_operation(F, n, a, b, mask, out, flags):
    for i in range(n):
        mul(F, out, 8 * i, a, i, b, i)
        sqr(F, out, 8 * i + 1, a, i)
        add(F, out, 8 * i + 2, a, i, b, i)
        sub(F, out, 8 * i + 3, a, i, b, i)
        neg(F, out, 8 * i + 4, a, i)
        copy(F, out, 8 * i + 5, a, i)
        canonical(F, out, 8 * i + 6, a, i)
        select(F, out, 8 * i + 7, a, i, b, i, mask)
        flags[2 * i] = is_zero(F, a, i)
        flags[2 * i + 1] = equal(F, a, i, b, i)
