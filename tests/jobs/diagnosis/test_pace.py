"""Times and counts in logs: silence, standstill, advance."""

from __future__ import annotations

from jobs.diagnosis.case import Case
from jobs.diagnosis.pace import advancing, clock_s, pace


def causes_of(case: Case, *, ended: bool = False) -> list[str]:
    return [clue.cause for clue in pace(case, ended=ended)]


def test_the_time_of_day_of_a_line() -> None:
    assert clock_s("2026-03-12T11:00:01.5Z INFO x") == 39601.5
    assert clock_s("no time, but aa:bb:cc and 99:99:99") is None


def test_a_prover_that_falls_silent_while_its_client_goes_on() -> None:
    daemon, bench = ["11:00:00 proof 3 started"], ["11:00:00 sent", "11:40:00 no result yet"]
    assert causes_of(Case({"daemon.log": daemon, "bench.log": bench}), ended=True) == ["daemon_hang"]
    assert causes_of(Case({"daemon.log": ["11:39:00 x"], "bench.log": bench}), ended=True) == []


def test_logs_that_stop_in_the_same_moment() -> None:
    streams = {"daemon.log": ["11:00:03 segment 3 done"], "bench.log": ["11:00:01 sent"]}
    assert causes_of(Case(streams)) == ["host_vanished"]
    assert causes_of(Case(streams), ended=True) == []


def test_a_line_that_breaks_off() -> None:
    lines = [f"11:00:0{i} segment {i} of job 7 done" for i in range(6)]
    assert causes_of(Case({"daemon.log": [*lines, "11:00:0"]}, torn={"daemon.log"})) == ["host_vanished"]
    assert causes_of(Case({"daemon.log": lines}, torn={"daemon.log"})) == []


def test_what_stands_still() -> None:
    assert causes_of(Case({"setup.log": ["a1b2c3: Downloading 1.2GB/9.8GB"] * 3})) == ["image_pull_stuck"]
    assert causes_of(Case({"setup.log": ["fetching srs: 12 %"] * 3})) == ["param_fetch_network"]
    assert causes_of(Case({"daemon.log": ["alive, queue depth: 8"] * 4})) == ["daemon_hang", "daemon_hang"]
    assert causes_of(Case({"bench.log": ["POST /prove -> 503, waiting"] * 9})) == []


def test_a_count_that_rises_up_to_the_end() -> None:
    rising = [f"11:00:0{i} shard {100 + i} done in {97 - 7 * i} ms" for i in range(6)]
    found = advancing("daemon.log", rising)
    assert found is not None
    assert found[1].line == 6
    assert advancing("daemon.log", ["shard 7 done"] * 6) is None
    assert advancing("daemon.log", [f"attempt {i}: refused, retry" for i in range(6)]) is None
