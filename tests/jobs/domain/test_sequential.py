"""The test that may be looked at after every proof: what it errs, and what it saves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from jobs.domain.sequential import FASTER, LEAST, OPEN, SLOWER, decide, expected_fraction

Draw = Callable[[np.random.Generator, int], np.ndarray]
N, RUNS = 24, 300


def normal(spread: float) -> Draw:
    return lambda dice, n: np.maximum(1 + spread * dice.standard_normal(n), 0.01)


def lognormal(spread: float) -> Draw:
    s = np.sqrt(np.log1p(spread**2))
    return lambda dice, n: np.exp(s * dice.standard_normal(n) - s * s / 2)


def spikes(dice: np.random.Generator, n: int) -> np.ndarray:
    """One in ten takes twice as long."""
    return np.where(dice.random(n) < 0.1, 2.0, 1.0) * (1 + 0.02 * dice.standard_normal(n)) / 1.1


DRAWS: dict[str, Draw] = {
    "steady": normal(0.01),
    "normal": normal(0.1),
    "skewed": lognormal(0.3),
    "wild": lognormal(0.5),
    "spikes": spikes,
}


def looked_at(draw: Draw, mean: float, seed: int) -> tuple[str, int]:
    """The decision about a machine that takes `mean` of the allowed time, looked at after every proof."""
    times = draw(np.random.default_rng(seed), N) * mean
    for n in range(1, N + 1):
        if found := decide(times[:n].tolist(), 1.0):
            return found, n
    return OPEN, N


@pytest.mark.parametrize("mean", [0.8, 0.95, 1.05, 1.25])
@pytest.mark.parametrize("kind", DRAWS)
def test_it_errs_in_less_than_one_of_twenty(kind: str, mean: float) -> None:
    wrong = FASTER if mean > 1 else SLOWER
    found = [looked_at(DRAWS[kind], mean, seed)[0] for seed in range(RUNS)]
    # 15 of 300 expected at most; 24 and more would be seen once in fifty by chance.
    assert found.count(wrong) <= 23


@pytest.mark.parametrize("mean", [0.7, 1.4])
def test_a_clear_case_is_decided_soon_and_right(mean: float) -> None:
    found = [looked_at(DRAWS["normal"], mean, seed) for seed in range(100)]
    assert {word for word, _ in found} == {SLOWER if mean > 1 else FASTER}
    assert np.mean([n for _, n in found]) < N / 3


def test_too_few_or_too_close_is_open() -> None:
    assert decide([0.1] * (LEAST - 1), 1.0) == OPEN
    assert decide([0.1] * LEAST, 1.0) == FASTER
    assert decide([0.95] * 500, 1.0) == OPEN
    assert decide([1.0] * 500, 1.0) == OPEN
    assert decide([1.0] * 500, 0.0) == OPEN


def test_what_a_benchmark_is_expected_to_make() -> None:
    center, sure = np.log(np.array([30.0, 30.0, 30.0])), np.full(3, 1e-6)
    assert expected_fraction(center, sure, None, 24).tolist() == [1.0] * 3
    far = expected_fraction(center, sure, 10.0, 24)
    near = expected_fraction(center, sure, 29.9, 24)
    assert far == pytest.approx(LEAST / 24)
    assert near == pytest.approx(1.0)
    between = expected_fraction(center, np.full(3, 0.3), 29.9, 24)
    assert (far < between).all()
    assert (between < near).all()
