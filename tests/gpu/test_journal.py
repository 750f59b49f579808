"""The daemon's log: lines of many threads stay lines."""

from __future__ import annotations

import io
import re
import sys
import threading

import pytest

from gpu import journal


def test_lines_of_threads_that_write_at_once_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, line_buffering=True))
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:

        def write(thread: int) -> None:
            for i in range(500):
                journal.timeline("DONE", f"job-{thread}", f"partition={i}")

        threads = [threading.Thread(target=write, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switching)
    lines = raw.getvalue().decode().splitlines()
    whole = re.compile(r"TIMELINE,\d+,DONE,job-\d,partition=\d+")
    assert [line for line in lines if not whole.fullmatch(line)] == []
    assert len(lines) == 8 * 500


def test_a_trace_ends_with_one_newline(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("seen")
    except ValueError:
        journal.log_trace()
    journal.log("two\nlines  are one")
    assert capsys.readouterr().err.endswith("ValueError: seen\ntwo lines are one\n")
