"""Words to blocks and back, rows, references with signs: for one lane and for eight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.field import arrays
from gpu.field.compiled import kernel
from gpu.field.kinds import KernelField, kernel_field
from gpu.field.moves import (
    from_words,
    gather_signed,
    join_words,
    prefetch_one,
    split_words,
    to_rows,
    to_words,
)
from tests.gpu.field.values import KINDS, name

pytestmark = pytest.mark.prover


@kernel
def _every_move(F, w, stride, refs, rows, blocks, words, same_words):
    from_words(F, blocks, 0, w, 1, stride)
    to_words(F, words, 1, blocks, 0, stride)
    split_words(F, blocks, 1, w, 1, stride)
    join_words(F, same_words, 1, blocks, 1, stride)
    to_rows(F, rows, 1, blocks, 0, stride)
    prefetch_one(F, rows, 1)
    gather_signed(F, blocks, 2, rows, 1, refs, 1, stride)


def _run(kind: KernelField, stride: int, offset: int, order: list[int], signs: list[bool], values: list[int]) -> None:
    p, d, lanes, plain = kind.field.modulus, kind.degree, kind.lanes, kernel_field(kind.field, kind.degree)
    n = 1 + stride * lanes
    source, words, same = (np.zeros(n * 8 * plain.words + offset, np.uint8)[offset:] for _ in range(3))
    source[:] = arrays.encode(plain, values[: n * d]).view(np.uint8)
    refs = np.array([0, *(2 * row + sign for row, sign in zip(order, signs, strict=True))], np.uint32)
    rows, blocks = arrays.rows(kind, n), arrays.elements(kind, 3 * lanes)
    _every_move(kind.marker, source, stride, refs, rows, blocks, words, same)

    lane = [values[(1 + stride * k) * d : (1 + stride * k) * d + d] for k in range(lanes)]
    inner = [[x * kind.field.r_inverse * kind.r % p for x in element] for element in lane]
    got = [x % p for x in arrays.decode(kind, blocks)]
    block = [[got[(k * lanes + j) * d : (k * lanes + j) * d + d] for j in range(lanes)] for k in range(3)]
    assert block[0] == inner
    assert block[1] == lane
    assert block[2] == [
        [-x % p for x in inner[row]] if sign else inner[row] for row, sign in zip(order, signs, strict=True)
    ]
    for array in (words, same):
        back = arrays.decode(plain, array.copy().view(np.uint64))
        wanted = [0] * (n * d)
        for k in range(lanes):
            wanted[(1 + stride * k) * d : (1 + stride * k) * d + d] = lane[k]
        assert back == wanted, "a neighbour was touched, or a value came back changed"
    moved = _row_values(kind, rows)
    for k in range(lanes):
        assert [x % p for x in moved[1 + stride * k]] == inner[k]


def _row_values(kind: KernelField, rows: np.ndarray) -> list[list[int]]:
    """Rows as lists of coefficients."""
    bits = 64 if kind.lanes == 1 else 52
    parts = rows.reshape(-1, kind.degree, kind.row_words // kind.degree)
    return [[sum(int(limb) << (bits * i) for i, limb in enumerate(part)) for part in row] for row in parts]


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_moves_there_and_back(kind: KernelField) -> None:
    p, d = kind.field.modulus, kind.degree
    value = st.one_of(st.sampled_from([0, 1, p - 1, p - (1 << 52), (1 << 52) - 1]), st.integers(0, p - 1))
    size = (1 + 3 * kind.lanes) * d

    @settings(max_examples=25, deadline=None)
    @given(
        stride=st.integers(1, 3),
        offset=st.integers(0, 9),
        order=st.permutations(range(kind.lanes)),
        signs=st.lists(st.booleans(), min_size=kind.lanes, max_size=kind.lanes),
        values=st.lists(value, min_size=size, max_size=size),
    )
    def check(stride: int, offset: int, order: list[int], signs: list[bool], values: list[int]) -> None:
        _run(kind, stride, offset, order, signs, values)

    check()
