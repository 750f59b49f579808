"""Kernels of the witness side: range checks, and the sparse products of the constraint matrices with the
witness.
"""

from __future__ import annotations

from gpu.field.compiled import kernel
from gpu.field.scalar import add, mul, reduced


@kernel
def first_not_reduced(F, values, n):
    """The index of the first value that is not below the modulus, or -1."""
    for i in range(n):
        if not reduced(F, values, i):
            return i
    return -1


@kernel
def accumulate_rows(F, out, rows, columns, values, witness, n, product):
    """out[rows[k]] += values[k] * witness[columns[k]] for every coefficient k. `product` is scratch for
    one element.

    With values in double Montgomery form (a zkey's) and a plain witness, `out` comes out in Montgomery form.
    """
    for k in range(n):
        mul(F, product, 0, values, k, witness, columns[k])
        add(F, out, rows[k], out, rows[k], product, 0)
