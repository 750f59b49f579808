"""The witness side: range checks, and the sparse products of the constraint matrices with the witness."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gpu.field import arrays
from gpu.field.compiled import kernel
from gpu.field.kinds import KernelField
from gpu.field.moves import prefetch_one
from gpu.field.operations import add, copy, mul, reduced, sub

_LEAST = 4096  # coefficients in a slice; for fewer, handing over costs more than the work

_AHEAD = 8  # coefficients; their witness values lie anywhere, and a look into memory takes as long as a few products


@kernel
def first_not_reduced(F, values, n):
    """The index of the first value that is not below the modulus, or -1."""
    for i in range(n):
        if not reduced(F, values, i):
            return i
    return -1


@kernel
def _multiply_rows(F, begin, end, out, starts, columns, values, witness, constants, sums):
    """out[i] = the sum of values[k] * witness[columns[k]] over starts[i] <= k < starts[i + 1], for begin <= i < end.

    `values` times R^2 (as a zkey has them), the witness plain, `out` times R. Most coefficients are 1 or -1, many
    values 0 or 1: these are added up as they are, and scaled once a row. `constants`: one (plain), R^2 and -R^2;
    `sums`: room for four elements.
    """
    last = starts[end] - 1
    for i in range(begin, end):
        sub(F, sums, 0, sums, 0, sums, 0)  # of products
        copy(F, sums, 1, sums, 0)  # of witness values that 1 or -1 belong to
        copy(F, sums, 2, sums, 0)  # of coefficients that a one belongs to
        plain_values, plain_coefficients = False, False
        for k in range(starts[i], starts[i + 1]):
            prefetch_one(F, witness, columns[min(k + _AHEAD, last)])
            at = 4 * np.int64(columns[k])
            low, high = witness[at], witness[at + 1] | witness[at + 2] | witness[at + 3]
            if high == 0 and low <= 1:
                if low == 1:
                    add(F, sums, 2, sums, 2, values, k)
                    plain_coefficients = True
                continue
            word = values[4 * k]
            if word == constants[4] and _same(values, 4 * k, constants, 4):
                add(F, sums, 1, sums, 1, witness, columns[k])
                plain_values = True
            elif word == constants[8] and _same(values, 4 * k, constants, 8):
                sub(F, sums, 1, sums, 1, witness, columns[k])
                plain_values = True
            else:
                mul(F, sums, 3, values, k, witness, columns[k])
                add(F, sums, 0, sums, 0, sums, 3)
        if plain_values:
            mul(F, sums, 3, sums, 1, constants, 1)
            add(F, sums, 0, sums, 0, sums, 3)
        if plain_coefficients:
            mul(F, sums, 3, sums, 2, constants, 0)
            add(F, sums, 0, sums, 0, sums, 3)
        copy(F, out, i, sums, 0)


@kernel
def _same(x, i, y, j):
    return x[i] == y[j] and x[i + 1] == y[j + 1] and x[i + 2] == y[j + 2] and x[i + 3] == y[j + 3]


@dataclass(frozen=True)
class Matrix:
    """A sparse matrix by rows: `columns` and `values` (times R^2, four words each) of row i lie from starts[i] up to
    starts[i + 1].
    """

    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    @classmethod
    def by_rows(cls, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, n_rows: int) -> Matrix:
        """From coefficients in any order; several of one place are added up by the product."""
        if np.any(rows[1:] < rows[:-1]):
            order = np.argsort(rows, kind="stable")
            columns, values = columns[order], values.reshape(-1, 4)[order].reshape(-1)
        starts = np.zeros(n_rows + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=n_rows), out=starts[1:])
        return cls(starts, columns, values)

    def slices(self, count: int) -> list[tuple[int, int]]:
        """The rows in at most `count` ranges of about equal work: coefficients, and something for each row."""
        work = self.starts + np.arange(len(self.starts))
        count = max(1, min(count, int(work[-1]) // _LEAST))
        edges = np.searchsorted(work, [int(work[-1]) * i // count for i in range(1, count)])
        return list(pairwise([0, *(int(edge) for edge in edges), len(self.starts) - 1]))


def products(
    fr: KernelField, matrices: Sequence[Matrix], witness: np.ndarray, pool: Executor, threads: int
) -> list[np.ndarray]:
    """Each matrix times the witness (plain, four words each), in Montgomery form, by the pool's threads."""
    p, r2 = fr.field.modulus, fr.field.r2
    constants = arrays.encode(fr, [1, r2, p - r2])
    out = [np.empty(4 * (len(matrix.starts) - 1), np.uint64) for matrix in matrices]

    def run(matrix: Matrix, target: np.ndarray, begin: int, end: int) -> None:
        rest = (target, matrix.starts, matrix.columns, matrix.values, witness, constants, arrays.elements(fr, 4))
        _multiply_rows(fr.marker, begin, end, *rest)

    parts = [
        pool.submit(run, matrix, target, *edge)
        for matrix, target in zip(matrices, out, strict=True)
        for edge in matrix.slices(threads)
    ]
    for part in parts:
        part.result()
    return out
