"""The bench's statistics: quantiles against a printed table, intervals, and how often the early stop errs."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest

from gpu.rates import ERROR, MIN_BATCHES, MIN_PROOFS, Decision, RateTest, interval, t_quantile


@pytest.mark.parametrize(
    ("p", "freedom", "expected"),
    # NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2.
    [
        (0.95, 1, 6.314),
        (0.95, 9, 1.833),
        (0.975, 4, 2.776),
        (0.99, 30, 2.457),
        (0.999, 2, 22.327),
        (0.999, 100, 3.174),
    ],
)
def test_quantiles_are_those_of_the_table(p: float, freedom: int, expected: float) -> None:
    assert t_quantile(p, freedom) == pytest.approx(expected, abs=6e-4)


def test_the_interval_holds_the_rate_and_needs_two_batches() -> None:
    assert interval([1.0, 2.0], 2) is None
    assert interval([], 1) is None
    low, high = interval([1.0, 2.1, 3.0, 4.1, 5.0], 1) or (0, 0)
    assert low < 3600 < high < 2 * 3600
    # Clumps of two are one batch: their rate has no spread at all.
    assert interval([1.9, 2.0, 3.9, 4.0, 5.9, 6.0], 2) == pytest.approx((3600, 3600))


def run(test: RateTest, durations: list[float]) -> Decision | None:
    ends: list[float] = []
    for end in accumulate(durations):
        ends.append(end)
        if (decision := test.look(ends)) is not None:
            return decision
    return None


@pytest.mark.parametrize(("minimum", "passed"), [(3000.0, True), (4200.0, False)])
def test_a_clear_rate_is_decided_soon_and_never_sooner(minimum: float, passed: bool) -> None:
    rng = random.Random(1)
    for concurrency in (1, 3):
        decision = run(RateTest(minimum, concurrency), [rng.gauss(1, 0.03) for _ in range(200)])
        assert decision is not None
        assert decision.passed is passed
        assert max(MIN_PROOFS, concurrency * (MIN_BATCHES + 1)) <= decision.after <= 60


def test_a_rate_at_the_minimum_stays_open() -> None:
    rng = random.Random(2)
    assert run(RateTest(3600.0, 1), [rng.gauss(1, 0.2) for _ in range(100)]) is None
    # Even without any spread: what is within one part in a hundred is not called decided.
    assert run(RateTest(3580.0, 1), [1.0] * 100) is None


@pytest.mark.parametrize(("spread", "ratio"), [(0.05, 0.999), (0.3, 1.001)])
def test_wrong_decisions_are_as_rare_as_stated(spread: float, ratio: float) -> None:
    """Hardest case: the true rate is next to the minimum, so that any decision for the other side is wrong."""
    rng, runs, wrong = random.Random(3), 150, 0
    for _ in range(runs):
        decision = run(RateTest(3600 / ratio, 1), [max(0.01, rng.gauss(1, spread)) for _ in range(35)])
        wrong += decision is not None and decision.passed != (ratio > 1)
    # Three standard deviations of a binomial with the stated chance.
    assert wrong <= runs * ERROR + 3 * (runs * ERROR) ** 0.5
