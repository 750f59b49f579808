"""How programs end, as it is told: exit code, signal, core dump, by whom."""

from __future__ import annotations

import os
from pathlib import Path

from gpu.agent.account import Account
from gpu.agent.procfs import read_text
from gpu.agent.runner import Ended, Program
from tests.fakes.controller import wait_for
from tests.gpu.agent.streams import Clock, content, stream_in


def run(folder: Path, script: str) -> tuple[Program, list[Ended]]:
    told: list[Ended] = []
    stream = stream_in(folder, Clock(), "bench")
    return Program(["sh", "-c", script], folder, {"PATH": os.environ["PATH"]}, stream, told.append), told


def test_an_exit_code_is_told_once(tmp_path: Path) -> None:
    program, told = run(tmp_path, "exit 7")
    ended = wait_for(program.ended)
    assert (ended.exit_code, ended.signal, ended.stopped, str(ended)) == (7, "", False, "ended with exit code 7")
    assert program.ended() is program.stop() is ended
    assert told == [ended]
    assert ended.ran_s > 0


def test_a_crash_tells_its_signal_and_whether_a_core_was_written(tmp_path: Path) -> None:
    program, _ = run(tmp_path, "ulimit -c unlimited; kill -ABRT $$")
    ended = wait_for(program.ended)
    assert (ended.exit_code, ended.signal) == (None, "SIGABRT")
    if read_text("/proc/sys/kernel/core_pattern").startswith(("core", "/")):
        assert ended.core_dumped == any(tmp_path.glob("core*"))
        assert ("core was dumped" in str(ended)) == ended.core_dumped


def test_who_does_not_end_when_asked_is_killed(tmp_path: Path) -> None:
    program, told = run(tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    ended = program.stop(grace_s=0.2)
    assert (ended.signal, ended.stopped) in (("SIGKILL", True), ("SIGTERM", True))  # the latter before its trap was set
    assert told == [ended]


def test_the_account_names_programs_and_stages_and_accuses_nobody_of_our_own_signals() -> None:
    account = Account("sha256:aa")
    account.program_ended("daemon", "benchmark", 1, Ended(None, "SIGTERM", stopped=True))
    account.program_ended("bench", "benchmark", 1, Ended(None, "SIGSEGV", core_dumped=True))
    account.stage_ended("benchmark", 1500.0004, Ended(None, "SIGSEGV"))
    told = account.told()
    assert told["exit_codes"] == {"daemon": None, "bench": None, "benchmark": None}
    assert told["signals"] == {"bench": "SIGSEGV", "benchmark": "SIGSEGV"}
    assert [(p.name, p.core_dumped, p.stopped) for p in told["processes"]] == [
        ("daemon", False, True),
        ("bench", True, False),
    ]
    assert (told["stages_ms"], told["image_digest"]) == ({"benchmark": 1500.0}, "sha256:aa")
    account.program_ended("bench", "benchmark", 2, Ended(0))
    assert account.told()["signals"] == {"benchmark": "SIGSEGV"}, "the last round is what counts"


def test_an_unfinished_line_of_one_program_does_not_run_into_the_next(tmp_path: Path) -> None:
    stream = stream_in(tmp_path, Clock(), "bench")
    for word in ("one", "two"):
        program = Program(["printf", word], tmp_path, {"PATH": os.environ["PATH"]}, stream, lambda _: None)
        wait_for(program.ended)
    assert content(stream) == b"one\ntwo"
