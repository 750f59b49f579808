"""Transforms of both CPU back ends against their definition, and large ones against what must come round again."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from gpu.curve.params import Curve
from gpu.errors import Cancelled
from gpu.field import arrays
from gpu.field.kinds import LANES, kernel_field
from gpu.ntt.domain import Domain, domain
from gpu.ntt.reference import evaluate

pytestmark = pytest.mark.prover


@pytest.fixture(params=[1, LANES], ids=["scalar", "ifma"])
def lanes(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def words(curve: Curve, values: list[int]) -> np.ndarray:
    return arrays.encode(kernel_field(curve.fr), values)


def numbers(curve: Curve, array: np.ndarray) -> list[int]:
    return arrays.decode(kernel_field(curve.fr), array)


def coefficients(curve: Curve, size: int, seed: int) -> list[int]:
    rng, r = random.Random(seed), curve.r
    return [rng.choice([0, 1, r - 1, rng.randrange(r)]) for _ in range(size)]


def on_domain(curve: Curve, polynomial: list[int], odd: bool = False) -> list[int]:
    log_n = len(polynomial).bit_length() - 1
    return evaluate(polynomial, curve.roots[log_n], curve.roots[log_n + 1] if odd else 1, curve.r)


@pytest.mark.parametrize("log_n", range(10))
def test_every_small_size_is_the_definition(curve: Curve, lanes: int, log_n: int, pool: ThreadPoolExecutor) -> None:
    polynomial = coefficients(curve, 1 << log_n, log_n)
    values, wanted = on_domain(curve, polynomial), on_domain(curve, polynomial, odd=True)
    tables = Domain(curve, 1 << log_n, lanes)
    for threads in (1, 3):
        x = words(curve, values)
        tables.to_odd_coset(x, pool, threads)
        assert numbers(curve, x) == wanted


def test_extreme_values(curve: Curve, lanes: int) -> None:
    """All r - 1: sums on the way grow as far as they can."""
    size, r = 256, curve.r
    x = words(curve, [r - 1] * size)
    Domain(curve, size, lanes).to_odd_coset(x)
    assert numbers(curve, x) == [r - 1] * size


def round_trip(curve: Curve, lanes: int, log_n: int, pool: ThreadPoolExecutor) -> None:
    """The odd coset lies half a step from the domain, so two transforms turn the values by one place. The first ones
    are those of a polynomial of three terms, so that they are known too.
    """
    size, r = 1 << log_n, curve.r
    places, factors = [0, 5, size - 3], [r - 1, 12345, r >> 1]
    values, odd = ([0] * size for _ in range(2))
    for place, factor in zip(places, factors, strict=True):
        step = pow(curve.roots[log_n], place, r)
        one, other = factor, factor * pow(curve.roots[log_n + 1], place, r) % r
        for i in range(size):
            values[i], odd[i] = (values[i] + one) % r, (odd[i] + other) % r
            one, other = one * step % r, other * step % r
    x, tables = words(curve, values), domain(curve, size, lanes)
    tables.to_odd_coset(x, pool, 2)
    assert np.array_equal(x, words(curve, odd))
    tables.to_odd_coset(x, pool, 2)
    assert np.array_equal(x, words(curve, values[1:] + values[:1]))


@pytest.mark.parametrize("log_n", [10, 11, 13, 16])
def test_round_trips(curve: Curve, log_n: int, pool: ThreadPoolExecutor) -> None:
    round_trip(curve, 1, log_n, pool)


@pytest.mark.parametrize("log_n", [11, 12, 13])
def test_round_trips_in_lanes(curve: Curve, log_n: int, pool: ThreadPoolExecutor) -> None:
    round_trip(curve, LANES, log_n, pool)


@pytest.mark.parametrize("size", [1, 2, 32, 128])
def test_quotient(curve: Curve, lanes: int, size: int, pool: ThreadPoolExecutor) -> None:
    r, to_montgomery = curve.r, curve.fr.to_montgomery
    p, q = coefficients(curve, size, 1), coefficients(curve, size, 2)
    a, b = (on_domain(curve, polynomial) for polynomial in (p, q))
    c = words(curve, [x * y % r for x, y in zip(a, b, strict=True)])
    tables = Domain(curve, size, lanes)
    tables.to_odd_coset(c)
    odd = (on_domain(curve, polynomial, odd=True) for polynomial in (p, q))
    wanted = [(x * y - z) % r for x, y, z in zip(*odd, numbers(curve, c), strict=True)]
    left, right = (words(curve, [to_montgomery(value) for value in side]) for side in (a, b))
    tables.quotient(left, right, pool, 2)
    assert numbers(curve, left) == wanted


class _Stopping(Executor):
    """A pool of which every second task is called off, as a ticket's is."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._count += 1
        return self._pool.submit(self._stop if self._count % 2 == 0 else fn, *args, **kwargs)

    def _stop(self, *args: Any) -> None:
        raise Cancelled("called off")


def test_a_transform_that_is_called_off_says_so(curve: Curve, lanes: int, pool: ThreadPoolExecutor) -> None:
    tables = Domain(curve, 1 << 12, lanes)
    with pytest.raises(Cancelled):
        tables.to_odd_coset(words(curve, [1] * tables.size), _Stopping(pool), 2)
