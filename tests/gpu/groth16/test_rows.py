"""Sparse products of matrices and witnesses against sums of Python ints."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu.curve.params import Curve
from gpu.field import arrays
from gpu.field.kinds import kernel_field
from gpu.groth16 import rows
from gpu.groth16.rows import Matrix, products

pytestmark = pytest.mark.prover


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), n_rows=st.integers(1, 30), n_columns=st.integers(1, 20), threads=st.integers(1, 40))
def test_products_are_the_sums(
    curve: Curve, pool: ThreadPoolExecutor, data: st.DataObject, n_rows: int, n_columns: int, threads: int
) -> None:
    """In any order, several coefficients in one place, empty rows, zeros, ones, minus ones."""
    r, fr = curve.r, kernel_field(curve.fr)
    number = st.one_of(st.sampled_from([0, 1, 2, r - 1, r - 2]), st.integers(0, r - 1))
    entry = st.tuples(st.integers(0, n_rows - 1), st.integers(0, n_columns - 1), number)
    entries = data.draw(st.lists(entry, max_size=80))
    witness = data.draw(st.lists(number, min_size=n_columns, max_size=n_columns))
    matrix = Matrix.by_rows(
        np.array([row for row, _, _ in entries], np.uint32),
        np.array([column for _, column, _ in entries], np.uint32),
        arrays.encode(fr, [value * curve.fr.r2 % r for _, _, value in entries]),
        n_rows,
    )
    wanted = [0] * n_rows
    for row, column, value in entries:
        wanted[row] += value * witness[column]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_LEAST", 8)
        one, other = products(fr, [matrix, matrix], arrays.encode(fr, witness), pool, threads)
    assert arrays.decode(fr, one) == arrays.decode(fr, other) == [curve.fr.to_montgomery(value) for value in wanted]


def test_slices_cover_all_rows_once() -> None:
    counts = [0, 0, 9000, 1, 0, 3, 20000, 0, 0, 5, 7000]
    matrix = Matrix(np.cumsum([0, *counts]), np.zeros(0, np.uint32), np.zeros(0, np.uint64))
    for n in (1, 2, 3, 7, 64):
        ranges = matrix.slices(n)
        assert [row for begin, end in ranges for row in range(begin, end)] == list(range(len(counts)))
        assert len(ranges) <= n
