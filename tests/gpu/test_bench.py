"""The bench as a command: what it prints, writes and exits with, and what a dying daemon or a signal does
to it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpu.child import OwnDaemon
from gpu.circuits import chain
from gpu.groth16.formats import vkey_from_zkey
from gpu.groth16.verify import verify_many
from tests.gpu.conftest import SMALL_N, SNARKJS_FIXTURES, Files

pytestmark = pytest.mark.prover


def bench(files: Files, *options: object, proofs: int = 4, wtns: list[Path] | None = None) -> list[str]:
    command = [sys.executable, "-m", "provefleet", "bench", "--zkey", str(files.zkey), "--proofs", str(proofs)]
    for path in wtns or [files.wtns]:
        command += ["--wtns", str(path)]
    return command + [str(option) for option in options]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def gone(pid: int) -> bool:
    """Whether the process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_for(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def test_end_to_end_with_different_witnesses(small: Files, tmp_path: Path) -> None:
    inputs = [11, 12, 13]
    wtns = [tmp_path / f"{x}.wtns" for x in inputs]
    for x, path in zip(inputs, wtns, strict=True):
        chain.write_wtns(SMALL_N, small.curve.name, x, path)
    out, progress = tmp_path / "out", tmp_path / "p.jsonl"
    options = ("--concurrency", 3, "--partition-workers", 2, "--out", out, "--progress", progress)
    done = run(bench(small, *options, "--daemon-log", tmp_path / "daemon.log", proofs=5, wtns=wtns))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("warm-up")
    assert [line.split()[0] for line in lines[1:6]] == [f"[{k}/5]" for k in range(1, 6)]
    assert lines[6].startswith("5 of 5 proofs ok")
    assert "proofs/hour" in lines[6]
    assert lines[7].startswith("a proof: median")
    assert lines[8].startswith("phases, median: queue")
    items = []
    for i in range(5):
        folder = out / str(i)
        assert sorted(path.name for path in folder.iterdir()) == ["proof.json", "public.json", "timings.json"]
        public = json.loads((folder / "public.json").read_text())
        assert public == chain.public(SMALL_N, small.curve.name, inputs[i % 3])
        items.append((public, json.loads((folder / "proof.json").read_text())))
    assert verify_many(vkey_from_zkey(small.zkey), items) == [None] * 5
    told = events(progress)
    assert [event["event"] for event in told] == ["start", "warm_up", *["proof"] * 5, "end"]
    assert [event["done"] for event in told[2:7]] == [1, 2, 3, 4, 5]
    assert {event["index"] for event in told[2:7]} == set(range(5))
    assert (told[-1]["ok"], told[-1]["failed"]) == (5, 0)
    log = (tmp_path / "daemon.log").read_text()
    assert log.count(" ok ") == 6
    assert log.splitlines()[-1] == "stopped"


def test_a_failed_proof_hides_no_other(small: Files, tmp_path: Path) -> None:
    other = "bls12381" if small.curve.name == "bn254" else "bn254"
    wtns = [small.wtns, SNARKJS_FIXTURES[other] / "witness.wtns"]
    done = run(bench(small, "--out", tmp_path / "out", "--no-warm-up", "--json", proofs=4, wtns=wtns))
    assert done.returncode == 1
    summary = json.loads(done.stdout)
    assert (summary["ok"], summary["failed"]) == (2, 2)
    assert "2 of 4 proofs failed" in done.stderr.splitlines()[-1]
    assert "witness is for" in (tmp_path / "out/1/error.txt").read_text()
    assert not (tmp_path / "out/1/timings.json").exists()
    assert (tmp_path / "out/2/timings.json").exists()


def test_a_rate_under_the_minimum_fails_the_bench(all_small: dict[str, Files]) -> None:
    done = run(bench(all_small["bn254"], "--min-proofs-per-hour", "1e12", proofs=1))
    assert done.returncode == 1
    assert done.stderr.startswith("Error: slow")


def test_a_foreign_daemon_is_used_and_left_alone(all_small: dict[str, Files]) -> None:
    with OwnDaemon(1) as daemon:
        assert run(bench(all_small["bn254"], "--url", daemon.url, proofs=2)).returncode == 0
        assert daemon.death() is None


@pytest.mark.parametrize("url", ["unix:/nowhere/s", "http://127.0.0.1:1", "ftp://x", "http://"])
def test_an_unreachable_daemon_is_one_line(all_small: dict[str, Files], url: str) -> None:
    done = run(bench(all_small["bn254"], "--url", url, "--no-warm-up", proofs=1))
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1


def start_long_bench(files: Files, progress: Path) -> tuple[subprocess.Popen[str], int]:
    """A running bench that has made its first proofs, and its daemon's process id."""
    command = bench(files, "--progress", progress, "--concurrency", 2, proofs=100_000)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: sum(event["event"] == "proof" for event in events(progress)) >= 2)
    (daemon,) = children(process.pid)
    return process, daemon


def test_a_daemon_killed_mid_bench_is_named_and_the_rest_fails_fast(
    all_small: dict[str, Files], tmp_path: Path
) -> None:
    progress = tmp_path / "p.jsonl"
    command = bench(all_small["bn254"], "--progress", progress, "--concurrency", 2, proofs=60)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: sum(event["event"] == "proof" for event in events(progress)) >= 2)
        (daemon,) = children(process.pid)
        os.kill(daemon, signal.SIGKILL)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "the daemon was killed by SIGKILL" in stderr
    assert len(stderr.strip().splitlines()) == 1
    told = events(progress)
    assert told[-1]["event"] == "end"
    assert told[-1]["ok"] >= 2
    assert told[-1]["ok"] + told[-1]["failed"] == 60


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_ended_bench_leaves_no_daemon(all_small: dict[str, Files], tmp_path: Path, signum: signal.Signals) -> None:
    process, daemon = start_long_bench(all_small["bn254"], tmp_path / "p.jsonl")
    with process:
        process.send_signal(signum)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "Traceback" not in stderr
    wait_for(lambda: gone(daemon), 10)
