"""The back end `cuda` with real processes, on an emulated GPU: what a lost process costs, and what it must not cost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu.cuda.client import CudaBackend
from gpu.cuda.device import GpuError, NoDevice, OutOfDeviceMemory
from gpu.cuda.process import Limits
from gpu.errors import Cancelled, DeadlineExceeded, Refused
from gpu.groth16.ticket import Ticket
from tests.gpu.conftest import Files
from tests.gpu.cuda.works import Work, make_work

pytestmark = [pytest.mark.prover, pytest.mark.timeout(600)]  # the first to come compiles the kernels
BRIEF = Limits(silence_s=5, step_s=60, start_s=60, stop_s=5)


@pytest.fixture(scope="module")
def work(all_small: dict[str, Files], pool: Executor) -> Work:
    return make_work(all_small["bn254"], pool)


Start = Callable[..., CudaBackend]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a back end whose processes do what the given lines say, one after the other."""
    started = []

    def start(*lines: dict[str, Any], limits: Limits = BRIEF) -> CudaBackend:
        script = tmp_path / "script"
        script.write_text("\n".join(map(json.dumps, lines)))
        command = (sys.executable, "-m", "tests.gpu.cuda.emulated_server", str(script))
        started.append(CudaBackend(command, limits))
        return started[-1]

    yield start
    for backend in started:
        pids = [facts["pid"] for facts in backend.gpus() if facts]
        backend.close()
        assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


def test_proofs_one_after_the_other_and_at_once(work: Work, start: Start) -> None:
    backend = start()
    (pid,) = [facts["pid"] for facts in backend.gpus()]
    assert backend.sums(work.key, work.copy()) == work.expected
    with ThreadPoolExecutor(3) as many:
        assert all(sums == work.expected for sums in many.map(lambda _: backend.sums(work.key, work.copy()), range(3)))
    assert [facts["pid"] for facts in backend.gpus()] == [pid]
    (status,) = backend.workers()
    assert status == {
        "worker_id": 0,
        "gpu_ordinal": 0,
        "state": "idle",
        "current_job": None,
        "current_partition": None,
        "busy_secs": None,
    }


@pytest.mark.parametrize("fault", ["poison", "kill", "crash", "stop", "hang"])
def test_a_lost_process_is_replaced_and_its_proof_made(
    fault: str, work: Work, start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    """`hang` is a kernel that never ends in a process that is otherwise well, `stop` a process that is not."""
    limits = replace(BRIEF, silence_s=2 if fault == "stop" else 20, step_s=3 if fault == "hang" else 60)
    backend = start({"call": 40, "fault": fault}, limits=limits)
    (first,) = [facts["pid"] for facts in backend.gpus()]
    assert backend.sums(work.key, work.copy()) == work.expected
    (second,) = [facts["pid"] for facts in backend.gpus()]
    assert second != first
    assert gone(first)
    said = [line for line in capfd.readouterr().err.splitlines() if "is replaced" in line]
    assert len(said) == 1
    assert {"hang": "hung for", "stop": "silent", "poison": "illegal access"}.get(fault, "died") in said[0]


def test_a_proof_that_kills_twice_fails_and_the_next_one_is_made(work: Work, start: Start) -> None:
    backend = start({"call": 40, "fault": "kill"}, {"call": 41, "fault": "poison"})
    with pytest.raises(GpuError, match=r"failed on 2 GPU processes.*illegal access"):
        backend.sums(work.key, work.copy())
    assert backend.sums(work.key, work.copy()) == work.expected


def test_the_process_that_is_killed_from_outside(work: Work, start: Start) -> None:
    backend = start({"call": 30, "fault": "hang"})
    (pid,) = [facts["pid"] for facts in backend.gpus()]
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(backend.sums, work.key, work.copy())
        while backend.workers()[0]["state"] != "proving":
            time.sleep(0.01)
        (status,) = backend.workers()
        assert (status["current_job"], status["current_partition"]) == ("job", 3)
        assert status["busy_secs"] >= 0
        os.kill(pid, signal.SIGKILL)
        assert asked.result(60) == work.expected


def test_a_process_that_dies_idle_is_replaced_before_the_next_proof(work: Work, start: Start) -> None:
    backend = start()
    (pid,) = [facts["pid"] for facts in backend.gpus()]
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 30
    while backend.gpus()[0]["pid"] == pid:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert backend.sums(work.key, work.copy()) == work.expected


def test_an_error_of_the_proof_is_its_own(work: Work, start: Start) -> None:
    """Neither tried again nor held against the process."""
    backend = start({"call": 40, "fault": "error"})
    (pid,) = [facts["pid"] for facts in backend.gpus()]
    with pytest.raises(GpuError, match="ordered by the test"):
        backend.sums(work.key, work.copy())
    assert backend.sums(work.key, work.copy()) == work.expected
    assert [facts["pid"] for facts in backend.gpus()] == [pid]


def test_a_key_that_does_not_fit_is_refused_before_work(work: Work, start: Start) -> None:
    backend = start({"total": 200_000, "smallest_range": 2})
    begun = time.monotonic()
    with pytest.raises(OutOfDeviceMemory, match=r"k\.zkey: a proof needs at least .* MiB of GPU memory"):
        backend.sums(work.key, work.copy())
    assert time.monotonic() - begun < 5


def test_out_of_memory_in_the_middle_is_named_and_survived(work: Work, start: Start) -> None:
    backend = start({"call": 60, "fault": "out of memory"})
    with pytest.raises(OutOfDeviceMemory, match="as the test ordered"):
        backend.sums(work.key, work.copy())
    assert backend.sums(work.key, work.copy()) == work.expected


def test_cancelled_and_late_proofs_leave_the_process_to_others(work: Work, start: Start) -> None:
    backend = start()
    ticket = Ticket("unwanted")
    with ThreadPoolExecutor(2) as many:
        running = many.submit(backend.sums, work.key, work.copy(ticket))
        waiting = many.submit(backend.sums, work.key, work.copy(ticket))
        while backend.workers()[0]["current_job"] != "unwanted":
            time.sleep(0.01)
        ticket.cancel()
        for cancelled in (running, waiting):
            with pytest.raises(Cancelled):
                cancelled.result(10)
    with pytest.raises(DeadlineExceeded):
        backend.sums(work.key, work.copy(Ticket("late", deadline=time.monotonic())))
    assert backend.sums(work.key, work.copy()) == work.expected


def test_several_gpus_share_the_proofs(work: Work, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process sees its own GPU. The one that dies hands its proof to the other."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aaaa, GPU-bbbb")
    backend = start({"count": 2}, {"call": 40, "fault": "kill"})
    with ThreadPoolExecutor(4) as many:
        assert all(sums == work.expected for sums in many.map(lambda _: backend.sums(work.key, work.copy()), range(4)))
    assert [worker["gpu_ordinal"] for worker in backend.workers()] == [0, 1]
    assert backend.gpus()[0]["visible"] == "GPU-aaaa, GPU-bbbb"
    assert backend.gpus()[1].get("visible", "GPU-bbbb") == "GPU-bbbb"


def test_a_machine_without_a_gpu(start: Start) -> None:
    with pytest.raises(NoDevice, match="the test took it away"):
        start({"start": "no device"})


def test_a_process_that_never_starts_fails_the_proofs_at_once(
    work: Work, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = start({"call": 40, "fault": "kill"}, *[{"start": "crash"}] * 3)
    with pytest.raises(GpuError, match="exit code 1"):
        backend.sums(work.key, work.copy())
    with pytest.raises(GpuError, match="exit code 1"):
        backend.sums(work.key, work.copy())
    end = time.monotonic() + 60
    while backend.workers()[0]["state"] != "idle":
        assert time.monotonic() < end
        time.sleep(0.1)
    assert backend.sums(work.key, work.copy()) == work.expected


def test_only_the_key_that_was_checked_is_used(work: Work, start: Start, tmp_path: Path) -> None:
    moved = tmp_path / "k.zkey"
    moved.write_bytes(Path(work.key.path).read_bytes())
    backend = start()
    with pytest.raises(Refused, match="was changed while it was in use"):
        backend.sums(replace(work.key, path=str(moved)), work.copy())
    moved.unlink()
    with pytest.raises(GpuError, match=r"k\.zkey: file: cannot be read"):
        backend.sums(replace(work.key, path=str(moved)), work.copy())
    assert backend.sums(work.key, work.copy()) == work.expected


def test_the_process_ends_with_its_parent(tmp_path: Path) -> None:
    """Even when the parent is killed, and even while a kernel hangs."""
    script = tmp_path / "script"
    script.write_text("")
    code = """
import json, os, sys, time
from gpu.cuda.client import CudaBackend
backend = CudaBackend((sys.executable, "-m", "tests.gpu.cuda.emulated_server", sys.argv[1]))
print(backend.gpus()[0]["pid"], flush=True)
time.sleep(3600)
"""
    with subprocess.Popen([sys.executable, "-c", code, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    assert gone(pid)


def test_no_gpu_process_outlives_a_closed_back_end(work: Work, start: Start) -> None:
    """Closing waits for the proof under way."""
    backend = start()
    (pid,) = [facts["pid"] for facts in backend.gpus()]
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(backend.sums, work.key, work.copy())
        while backend.workers()[0]["state"] != "proving":
            time.sleep(0.01)
        backend.close()
        assert asked.result(1) == work.expected
    assert gone(pid)
