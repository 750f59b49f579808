"""Every field operation of the scalar back end against Python ints, with the values that break careless
code.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from gpu.field.kinds import FIELDS, KernelField
from gpu.field.tower import Fp, Fp2
from tests.gpu.kernels import N_RESULTS, every_operation

pytestmark = pytest.mark.prover

KINDS = [kind for kind in FIELDS.values() if kind.lanes == 1]


def encode(kind: KernelField, values: list[int]) -> np.ndarray:
    n = kind.field.n_bytes
    return np.frombuffer(bytearray(b"".join(value.to_bytes(n, "little") for value in values)), np.uint64)


def decode(kind: KernelField, array: np.ndarray) -> list:
    n, raw = kind.field.n_bytes, array.tobytes()
    plain = [int.from_bytes(raw[i : i + n], "little") for i in range(0, len(raw), n)]
    return plain if kind.degree == 1 else list(zip(plain[::2], plain[1::2], strict=True))


def edges(kind: KernelField) -> list[int]:
    p = kind.field.modulus
    return [0, 1, 2, p - 1, p - 2, (p - 1) // 2, kind.field.r, kind.field.r2, p - (1 << 64), (1 << 64) - 1]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.field.name}-{kind.degree}")
def test_operations_equal_the_oracle(kind: KernelField) -> None:
    rng, p = random.Random(7), kind.field.modulus
    ops = Fp(p) if kind.degree == 1 else Fp2(p)
    values = edges(kind) + [rng.randrange(p) for _ in range(8)]
    if kind.degree == 2:
        values = list(itertools.product(values[::2], values[1::3]))
    pairs = list(itertools.product(values, values))
    flat = [list(side) for side in zip(*pairs, strict=True)]
    if kind.degree == 2:
        flat = [[part for pair in side for part in pair] for side in flat]
    a, b = (encode(kind, side) for side in flat)
    out = np.zeros(N_RESULTS * len(pairs) * kind.words, np.uint64)
    flags = np.zeros(3 * len(pairs), np.bool_)
    every_operation(kind.marker, len(pairs), a, b, out, flags)
    got = decode(kind, out)
    for i, (x, y) in enumerate(pairs):
        product = ops.scale(ops.mul(x, y), kind.field.r_inverse)
        square = ops.scale(ops.mul(x, x), kind.field.r_inverse)
        assert got[6 * i : 6 * i + 6] == [product, square, ops.add(x, y), ops.sub(x, y), ops.neg(x), x]
        assert list(flags[3 * i : 3 * i + 3]) == [x == ops.zero, x == y, True]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.field.name}-{kind.degree}")
def test_values_from_p_to_a_tenth_above_are_seen(kind: KernelField) -> None:
    p = kind.field.modulus
    over = [p, p + 1, p + p // 20, p + p // 10]
    values = [part for value in over for part in ([value] if kind.degree == 1 else [1, value])]
    array = encode(kind, values)
    flags = np.ones(3 * len(over), np.bool_)
    out = np.zeros(N_RESULTS * len(over) * kind.words, np.uint64)
    every_operation(kind.marker, len(over), array, array, out, flags)
    assert not flags[2::3].any()


def test_operands_may_be_unaligned_bytes() -> None:
    kind = KINDS[0]
    shifted = np.zeros(1 + 2 * kind.field.n_bytes, np.uint8)[1:]
    shifted[:] = encode(kind, [5, 7]).view(np.uint8)
    out, flags = np.zeros(12 * kind.words, np.uint64), np.zeros(6, np.bool_)
    every_operation(kind.marker, 2, shifted, shifted, out, flags)
    assert decode(kind, out)[5::6] == [5, 7]
