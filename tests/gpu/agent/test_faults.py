"""Whatever dies, hangs or floods: what was written is in the archive, and the agent says what happened."""

from __future__ import annotations

import io
import os
import signal
import time
from pathlib import Path

import pytest

from gpu.protocol import Command
from logs.chunks import check_successor, open_frame
from logs.emergency import unpack_emergency
from tests.fakes.controller import TOKEN, wait_for
from tests.gpu.agent.conftest import Rig


def prover_pid(rig: Rig) -> int:
    """The stand-in's process: the agent's child that runs payload.py."""

    def find() -> int | None:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if str(rig.work).encode() in b" ".join(words) and b"payload.py" in b" ".join(words[:3]):
                    return int(entry.name)
        return None

    pid: int = wait_for(find)
    return pid


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_killed_prover_is_named(rig: Rig) -> None:
    rig.prepare("hang", proofs=2)
    rig.run()
    wait_for(lambda: b"still here" in rig.bench())
    os.kill(prover_pid(rig), signal.SIGKILL)
    progress = rig.ended()
    assert (progress.exit_code, progress.signal) == (None, "SIGKILL")
    assert progress.done == 2
    assert rig.seal_and_exit() == 0
    seal = rig.controller.seals[-1]
    assert seal.signals == {"benchmark": "SIGKILL", "bench": "SIGKILL"}
    assert [(p.name, p.stage, p.signal, p.stopped) for p in seal.processes] == [
        ("bench", "benchmark", "SIGKILL", False)
    ]


def test_an_exit_code_is_told_and_nothing_follows(rig: Rig) -> None:
    rig.prepare("fail", proofs=1, stages=["params", "benchmark", "prove"])
    rig.run()
    assert rig.ended().exit_code == 3
    time.sleep(0.5)
    assert rig.controller.last().progress.stage == "benchmark"
    assert rig.seal_and_exit() == 0


def test_a_program_that_cant_run_is_named(rig: Rig) -> None:
    rig.prepare(command=["/no/such/prover"], proofs=1)
    rig.run()
    assert rig.ended().exit_code == 127
    rig.seal_and_exit()
    assert b"/no/such/prover: can't be run: No such file" in rig.bench()


def test_a_killed_agent_takes_the_prover_along_and_loses_two_seconds_at_most(rig: Rig) -> None:
    rig.prepare("hang", proofs=1)
    rig.run()
    wait_for(lambda: len(rig.controller.records.get("bench", [])) >= 3)
    pid = prover_pid(rig)
    killed_at = time.time()
    os.kill(rig.agent.pid, signal.SIGKILL)
    rig.agent.wait()
    wait_for(lambda: not alive(pid), 5)
    times = [float(line.split()[2]) for line in rig.bench().splitlines() if line.startswith(b"still here")]
    assert killed_at - times[-1] < 2.0


def test_grandchildren_that_hold_the_output_dont_hold_the_stage(rig: Rig) -> None:
    rig.prepare("grandchild", proofs=1)
    rig.run()
    began = time.monotonic()
    assert rig.ended().exit_code == 0
    assert time.monotonic() - began < 15
    rig.seal_and_exit()


def test_seal_stops_a_running_stage(rig: Rig) -> None:
    rig.prepare("hang", proofs=1)
    rig.run()
    wait_for(lambda: b"still here" in rig.bench())
    pid = prover_pid(rig)
    assert rig.seal_and_exit() == 0
    assert not alive(pid)
    seal = rig.controller.seals[-1]
    assert seal.signals == {}, "a signal of our own accuses nobody"
    assert [(p.name, p.signal, p.stopped) for p in seal.processes] == [("bench", "SIGTERM", True)]


def test_without_a_controller_it_seals_by_itself_and_ends(rig: Rig) -> None:
    controller = rig.prepare("hang", proofs=1)
    controller.lease_s = 4.0
    rig.run()
    wait_for(lambda: len(controller.records.get("bench", [])) >= 2)
    pid = prover_pid(rig)
    controller.down = True
    assert rig.agent.wait(20) == 3
    assert not alive(pid)
    data, headers = rig.objects.put["emergency"]
    assert headers["If-None-Match"] == "*"
    emergency = unpack_emergency(io.BytesIO(data))
    assert emergency.manifest["instance"] == "a" * 32
    assert "lease" in emergency.manifest["reason"]
    text = dict(controller.raw)
    last = {name: records[-1] for name, records in controller.records.items()}
    for stream, record, frame in emergency.chunks:
        raw = open_frame(frame, record)
        if record.seq > last[stream].seq:
            check_successor(last[stream], record)
            last[stream], text[stream] = record, text[stream] + raw
    for stream, end in emergency.manifest["streams"].items():
        assert last[stream].seq + 1 == end["chunks"]
        assert len(text[stream]) == end["raw_bytes"]
    assert b"stops the stage: the lease could not be renewed" in text["setup"]


def test_a_controller_away_for_less_than_the_lease_costs_nothing(rig: Rig) -> None:
    controller = rig.prepare("slow", proofs=8)
    controller.lease_s = 30.0
    rig.run()
    wait_for(lambda: controller.results)
    controller.down = True
    time.sleep(4)
    controller.down = False
    assert rig.ended().exit_code == 0
    assert len(controller.results) == 8
    assert rig.seal_and_exit() == 0
    assert rig.bench().count(b"done") == 8
    assert "the lease is renewed again" in controller.raw["setup"].decode()


def test_a_store_that_is_away_is_waited_for(rig: Rig) -> None:
    controller = rig.prepare(proofs=2)
    controller.answer = lambda path: (503, "unavailable") if "/chunks/" in path else None
    rig.run()
    rig.ended()
    assert controller.records == {}
    controller.commands = [Command("seal", "over")]
    time.sleep(1)
    assert controller.seals == []
    assert controller.last().progress.stage == "sealing"
    controller.answer = lambda path: None
    assert rig.seal_and_exit() == 0
    assert b"proof 1: done" in rig.bench()


def test_what_has_waited_goes_up_together(rig: Rig) -> None:
    controller = rig.prepare("flood:4", proofs=1)
    asked: list[str] = []

    def away(path: str) -> tuple[int, str] | None:
        asked.append(path)
        return (503, "unavailable") if "/chunks/" in path else None

    controller.answer = away
    rig.run()
    rig.ended()
    controller.answer = lambda path: asked.append(path)
    assert rig.seal_and_exit() == 0
    assert len(rig.bench()) > 4 << 20
    taken = [path for path in asked if path.startswith("/chunks/bench")]
    assert "/chunks/bench" in taken
    assert len(controller.records["bench"]) > 60


def test_a_controller_that_knows_single_chunks_only(rig: Rig) -> None:
    controller = rig.prepare("flood:1", proofs=1)
    controller.answer = lambda path: (
        (405, "method_not_allowed") if path.count("/") == 2 and "/chunks/" in path else None
    )
    rig.run()
    assert rig.ended().exit_code == 0
    assert rig.seal_and_exit() == 0
    assert len(rig.bench()) > 1 << 20
    assert controller.seals[-1].reason.count("takes nothing more") == 0


def test_what_the_controller_lost_is_shipped_again(rig: Rig) -> None:
    controller = rig.prepare("slow", proofs=12)
    controller.forget_on_seal = {"bench": 1}
    rig.run()
    wait_for(lambda: len(controller.records.get("bench", [])) >= 2)
    rig.ended()
    controller.commands = [Command("seal", "over")]
    wait_for(lambda: len(controller.seals) >= 2)
    controller.commands = [Command("exit")]
    assert rig.agent.wait(10) == 0
    assert controller.seals[-1].streams["bench"].chunks == len(controller.records["bench"])
    assert rig.bench().endswith(b"without a newline")


def test_huge_lines_and_bytes_that_are_no_text(rig: Rig) -> None:
    controller = rig.prepare("huge", proofs=1)
    rig.run()
    assert rig.ended().exit_code == 0
    assert rig.seal_and_exit() == 0
    lines = rig.bench().split(b"\n")
    assert lines[1] == b"x" * 10_000_000
    assert lines[2] == b"\xff\xfe\x00bad"
    assert controller.seals[-1].streams["bench"].lines == len(lines) - 1


def test_a_flood_slows_no_lease(rig: Rig) -> None:
    """48 MiB of output that does not compress, as fast as it can be read."""
    controller = rig.prepare("flood:48", proofs=1)
    rig.run()
    assert rig.ended().exit_code == 0
    assert rig.seal_and_exit() == 0
    assert len(rig.bench()) > 48 << 20
    gaps = [b - a for (a, _), (b, _) in zip(controller.leases, controller.leases[1:], strict=False)]
    assert max(gaps) < 2.0


def test_a_quota_ends_one_stream_with_a_named_gap(rig: Rig) -> None:
    controller = rig.prepare("slow", proofs=8)
    controller.answer = lambda path: (413, "quota") if path.startswith("/chunks/bench/1") else None
    rig.run()
    assert rig.ended().exit_code == 0
    wait_for(lambda: b"the controller takes nothing more: 413 quota" in controller.raw["setup"])
    controller.commands = [Command("seal", "over")]
    wait_for(lambda: controller.seals)
    assert "stream bench: from line" in controller.seals[-1].reason
    assert "413" in controller.seals[-1].reason
    assert len(controller.records["bench"]) == 1
    assert controller.seals[-1].streams["bench"].chunks > 1
    controller.commands = [Command("exit")]
    assert rig.agent.wait(10) == 0


def test_a_full_disk_is_named_and_chunks_go_on_from_memory(rig: Rig) -> None:
    controller = rig.prepare(proofs=2)
    rig.work.mkdir()
    (rig.work / "spool").mkdir()
    (rig.work / "spool" / "bench").write_text("a file where a folder should be: no chunk can be written")
    rig.run()
    assert rig.ended().exit_code == 0
    assert rig.seal_and_exit() == 0
    assert b"proof 1: done" in rig.bench()
    assert b"stream bench: its chunks are kept in memory" in controller.raw["setup"]


def test_sigterm_ships_the_last_words(rig: Rig) -> None:
    rig.prepare("hang", proofs=1)
    rig.run()
    wait_for(lambda: b"still here" in rig.bench())
    pid = prover_pid(rig)
    rig.agent.terminate()
    assert rig.agent.wait(10) == 143
    assert not alive(pid)
    assert b"ends: SIGTERM" in rig.controller.raw["setup"]


def test_a_refused_registration_ends_it(rig: Rig) -> None:
    controller = rig.prepare()
    controller.answer = lambda path: (409, "past_registering") if path == "/register" else None
    rig.run()
    assert rig.agent.wait(10) == 1
    assert "past_registering" in rig.said()


def test_a_destroyed_instance_ends_at_once(rig: Rig) -> None:
    controller = rig.prepare("hang", proofs=1)
    rig.run()
    wait_for(lambda: b"still here" in rig.bench())
    controller.answer = lambda path: (410, "gone")
    assert rig.agent.wait(15) == 0


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_controller_that_starts_late_is_waited_for(rig: Rig, status: int) -> None:
    controller = rig.prepare(proofs=1)
    controller.answer = lambda path: (status, "not_yet")
    rig.run()
    wait_for(lambda: f"answer {status}" in rig.said())
    controller.answer = lambda path: None
    assert rig.ended().exit_code == 0
    rig.seal_and_exit()


def test_a_command_of_a_newer_controller_is_passed_over(rig: Rig) -> None:
    controller = rig.prepare(proofs=1)
    controller.commands = [Command("dance")]
    rig.run()
    assert rig.ended().exit_code == 0
    assert controller.last().acknowledged == []
    rig.seal_and_exit()


def test_secrets_stay_out_of_argv(rig: Rig) -> None:
    rig.prepare("hang", proofs=1)
    rig.run()
    wait_for(lambda: b"still here" in rig.bench())
    for pid in (rig.agent.pid, prover_pid(rig)):
        assert TOKEN.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"bootstrap" not in Path(f"/proc/{pid}/cmdline").read_bytes()
