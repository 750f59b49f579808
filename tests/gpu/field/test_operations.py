"""Every field operation of both CPU back ends against Python ints."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.field import arrays
from gpu.field.compiled import kernel
from gpu.field.kinds import FIELDS, KernelField, kernel_field
from gpu.field.operations import add, copy, mul, reduced, sqr, sub
from tests.gpu.field.values import (
    KINDS,
    N_RESULTS,
    coefficients,
    edges,
    element,
    every_operation,
    limit,
    name,
    oracle,
)

pytestmark = pytest.mark.prover
_MASK = 0b01011010


def compare(kind: KernelField, x: list[int], y: list[int]) -> None:
    """All operations on the elements of x and y, coefficients in a row, in whole blocks."""
    n = len(x) // kind.degree // kind.lanes
    a, b = arrays.encode(kind, x), arrays.encode(kind, y)
    out, flags = arrays.elements(kind, N_RESULTS * n * kind.lanes), np.zeros(2 * n, np.int64)
    every_operation(kind.marker, n, a, b, _MASK & (1 << kind.lanes) - 1, out, flags)
    got = arrays.decode(kind, out)
    assert max(got) < limit(kind)
    f, inverse = oracle(kind), pow(kind.r, -1, kind.field.modulus)
    d = kind.degree
    for i, lane in itertools.product(range(n), range(kind.lanes)):
        at = i * kind.lanes + lane
        p, q = element(kind, x, at), element(kind, y, at)
        wanted = [
            f.scale(f.mul(p, q), inverse), f.scale(f.mul(p, p), inverse), f.add(p, q), f.sub(p, q), f.neg(p), p, p,
            p if _MASK >> lane & 1 else q,
        ]  # fmt: skip
        places = [(N_RESULTS * i + k) * kind.lanes + lane for k in range(N_RESULTS)]
        assert [element(kind, got, place) for place in places] == wanted
        exact = got[places[6] * d : places[6] * d + d]
        assert max(exact) < kind.field.modulus, "canonical is not reduced"
        assert [int(flags[2 * i + k]) >> lane & 1 for k in (0, 1)] == [p == f.zero, p == q]


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_edges_against_one_another(kind: KernelField) -> None:
    values = [[c] for c in edges(kind)]
    if kind.degree == 2:
        some = edges(kind)
        values = [list(pair) for pair in zip(some, some[3:] + some[:3], strict=True)]
        values += [[some[-1], some[-1]], [0, some[-1]], [some[-1], 0], [0, 0]]
    pairs = list(itertools.product(values, values))
    pairs += pairs[: -len(pairs) % kind.lanes]
    compare(kind, *(list(itertools.chain(*side)) for side in zip(*pairs, strict=True)))


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_random_values(kind: KernelField) -> None:
    size = 2 * kind.lanes * kind.degree

    @settings(max_examples=30, deadline=None)
    @given(st.lists(coefficients(kind), min_size=2 * size, max_size=2 * size))
    def check(values: list[int]) -> None:
        compare(kind, values[:size], values[size:])

    check()


@kernel
def _chain(F, n, a, b, c):
    """c = (c a + b)^2 - c, n times: what is stored becomes an operand at once."""
    for _ in range(n):
        mul(F, c, 1, c, 0, a, 0)
        add(F, c, 1, c, 1, b, 0)
        sqr(F, c, 1, c, 1)
        sub(F, c, 0, c, 1, c, 0)


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_long_chains(kind: KernelField) -> None:
    top, n = limit(kind) - 1, 500
    a, b, c = ([(top - 7 * k - i) for i in range(kind.lanes * kind.degree)] for k in range(3))
    out = np.concatenate([arrays.encode(kind, c), arrays.encode(kind, c)])
    _chain(kind.marker, n, arrays.encode(kind, a), arrays.encode(kind, b), out)
    got, f, inverse = arrays.decode(kind, out), oracle(kind), pow(kind.r, -1, kind.field.modulus)
    assert max(got) < limit(kind)
    for lane in range(kind.lanes):
        x, y, z = (element(kind, side, lane) for side in (a, b, c))
        for _ in range(n):
            t = f.add(f.scale(f.mul(z, x), inverse), y)
            z = f.sub(f.scale(f.mul(t, t), inverse), z)
        assert element(kind, got, lane) == z


@kernel
def _reduced(F, n, words, flags):
    for i in range(n):
        flags[i] = reduced(F, words, i)


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_words_from_p_to_a_tenth_above_are_seen(kind: KernelField) -> None:
    p = kind.field.modulus
    cases = [0, p - 1, p, p + 1, p + p // 20, p + p // 10, (1 << (64 * kind.field.limbs)) - 1]
    values = [part for value in cases for part in ([value] if kind.degree == 1 else [1, value])]
    flags = np.zeros(len(cases), np.bool_)
    words = arrays.encode(kernel_field(kind.field, kind.degree), values)
    _reduced(kind.marker, len(cases), words, flags)
    assert list(flags) == [value < p for value in cases]


@kernel
def _copies(F, n, a, out):
    for i in range(n):
        copy(F, out, i, a, i)


def test_operands_of_one_lane_may_be_unaligned_bytes() -> None:
    kind = FIELDS["bn254_p", 1, 1]
    shifted = np.zeros(1 + 2 * kind.field.n_bytes, np.uint8)[1:]
    shifted[:] = arrays.encode(kind, [5, 7]).view(np.uint8)
    out = arrays.elements(kind, 2)
    _copies(kind.marker, 2, shifted, out)
    assert arrays.decode(kind, out) == [5, 7]
