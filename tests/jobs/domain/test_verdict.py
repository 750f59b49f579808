"""From proofs to a word: the table of verdicts, and the rate with its interval."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.verdict import T_95, Outcome, Rate, Verdict, decide, is_near_miss, measure

FAST = Rate(100.0, 90.0, 110.0, 60.0)


def outcomes(word: str) -> list[Outcome]:
    """v valid, i invalid, e an error of the prover, b a bad input, - no answer."""
    kinds = {
        "v": ("valid", ""),
        "i": ("invalid", "the pairing equation does not hold"),
        "e": ("error", "out of memory\nin detail"),
        "b": ("error", "witness_refused: value 3 is not below r"),
        "-": ("", ""),
    }
    return [Outcome(n, *kinds[letter]) for n, letter in enumerate(word)]


TABLE: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("vvvv", {}, "passed", "", "4 of 4 proofs valid"),
    ("vvvv", {"minimum": 100.0}, "passed", "", "100.0 proofs/h"),
    ("vvvv", {"minimum": 100.1}, "slow", "slow", "under the minimum of 100.1"),
    ("vvvv", {"minimum": 500.0, "kind": "prove"}, "passed", "", ""),
    ("vvvv", {"exit_code": 137, "error": "ended oddly"}, "passed", "", ""),
    ("iiii", {}, "broken", "broken", "proof 0: the pairing equation"),
    ("eeee", {}, "broken", "broken", "proof 0: out of memory"),
    ("iiee", {}, "broken", "broken", "0 of 4"),
    ("----", {"exit_code": 3}, "failed", "", "exit code 3 after 0 of 4"),
    ("----", {"signal": "SIGKILL"}, "failed", "", "killed by SIGKILL after 0 of 4"),
    ("vv--", {"signal": "SIGSEGV"}, "failed", "", "killed by SIGSEGV after 2 of 4"),
    ("iiii", {"signal": "SIGSEGV"}, "failed", "", "killed by SIGSEGV"),
    ("vv--", {"exit_code": 1}, "failed", "", "only 2 of 4"),
    ("----", {}, "failed", "", "no answer came"),
    ("bbbb", {}, "failed", "", "the input is refused"),
    ("vbbb", {}, "failed", "", "1 of 4 proofs; the input is refused"),
    ("bbbi", {}, "broken", "broken", "0 of 4"),
    ("vvvi", {}, "failed", "unstable", "only 3 of 4"),
    ("vvve", {}, "failed", "", "only 3 of 4"),
    ("vvv-", {"error": "ran out of disk"}, "failed", "", "ran out of disk after 3 of 4"),
]


@pytest.mark.parametrize(("word", "more", "state", "mark", "says"), TABLE, ids=[f"{t[0]}-{t[2]}" for t in TABLE])
def test_verdicts(word: str, more: dict[str, Any], state: str, mark: str, says: str) -> None:
    kind, minimum = more.get("kind", "benchmark"), more.get("minimum")
    rest = {name: value for name, value in more.items() if name not in ("kind", "minimum")}
    verdict = decide(kind, outcomes(word), FAST, minimum, **rest)
    assert (verdict.state, verdict.machine_mark) == (state, mark), verdict
    assert says in verdict.reason
    assert "\n" not in verdict.reason


def test_a_near_miss_is_slow_with_the_minimum_inside_the_interval() -> None:
    slow, passed = Verdict("slow", "", "slow"), Verdict("passed", "")
    assert is_near_miss(slow, FAST, 105.0)
    assert is_near_miss(slow, FAST, 110.0)
    assert not is_near_miss(slow, FAST, 110.1)
    assert not is_near_miss(passed, FAST, 95.0)
    assert not is_near_miss(slow, Rate(100.0, None, None, 60.0), 101.0)
    assert not is_near_miss(slow, FAST, None)


def test_rate_on_our_clock() -> None:
    even = measure(0, [10_000, 20_000, 30_000, 40_000], 1)
    assert (even.proofs_per_hour, even.low, even.high, even.window_s) == (360.0, 360.0, 360.0, 40.0)
    # Two at a time, in clumps of two: the clumps are what varies.
    clumped = measure(0, [10_000, 10_100, 20_000, 20_100], 2)
    assert clumped.low is not None
    assert clumped.low > 340
    uneven = measure(0, [5_000, 20_000, 22_000, 40_000], 1)
    assert uneven.low is not None
    assert uneven.high is not None
    assert uneven.low < 360 < uneven.high
    # Mean 10 s, stdev 7.703 s, n = 4, t(3) = 2.353: by hand.
    assert uneven.high == pytest.approx(360 * (1 + 2.353 * 7.7028 / 10 / 2), rel=1e-3)
    assert measure(0, [1_000], 1) == Rate(3600.0, None, None, 1.0)
    assert measure(0, [], 1).proofs_per_hour == 0
    assert measure(50, [50], 1).proofs_per_hour > 0


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=80), st.integers(1, 9))
def test_the_interval_holds_the_rate(times: list[int], concurrency: int) -> None:
    rate = measure(0, times, concurrency)
    if rate.low is not None and rate.high is not None:
        assert 0 <= rate.low <= rate.proofs_per_hour <= rate.high <= 2 * rate.proofs_per_hour
    assert rate == measure(0, times[::-1], concurrency)


def test_the_table_of_t_falls_towards_the_normal() -> None:
    assert list(T_95) == sorted(T_95, reverse=True)
    assert T_95[-1] > 1.645
