"""What a bench concludes: early or not, and from a daemon that lies. The daemon is a stand-in, the proofs are real."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gpu.groth16.engine import Engine
from gpu.rates import MIN_PROOFS
from tests.gpu.conftest import Files
from tests.gpu.slowdaemon import SlowDaemon, serving
from tests.gpu.test_bench import bench, events, run, wait_for

pytestmark = pytest.mark.prover

N = 40


@pytest.fixture(scope="module")
def files(all_small: dict[str, Files]) -> Files:
    return all_small["bn254"]


@pytest.fixture(scope="module")
def proofs(files: Files) -> list[dict[str, Any]]:
    """As many different proofs as the longest bench takes."""
    engine = Engine()
    made = [engine.prove(str(files.zkey), str(files.wtns)) for _ in range(N)]
    engine.close()
    return [{"proof": done.proof, "public": done.public} for done in made]


def decided(files: Files, daemon: SlowDaemon, *options: object) -> tuple[subprocess.CompletedProcess[str], dict]:
    common = ("--url", daemon.url, "--no-warm-up", "--json")
    done = run(bench(files, *common, *options, proofs=N))
    return done, json.loads(done.stdout)


@pytest.mark.parametrize(("minimum", "passed", "concurrency"), [(10_000, True, 2), (10_000_000, False, 1)])
def test_a_clear_rate_ends_the_bench_early(
    files: Files, proofs: list[dict[str, Any]], minimum: int, passed: bool, concurrency: int
) -> None:
    with serving(SlowDaemon(proofs.__getitem__, lambda k: 0.04)) as daemon:
        options = ("--min-proofs-per-hour", minimum, "--concurrency", concurrency)
        done, summary = decided(files, daemon, *options)
    assert done.returncode == (0 if passed else 1)
    assert MIN_PROOFS <= summary["ok"] < N
    assert (summary["failed"], summary["left"]) == (0, N - summary["ok"])
    assert summary["slow"] is not passed
    early = summary["stopped_early"]
    assert (early["passed"], early["after"], early["error"]) == (passed, summary["ok"], 0.01)
    low, high = early["interval"]
    assert low > minimum if passed else high < minimum
    assert f"stopped early, after {summary['ok']} proofs" in done.stderr
    assert ("above" if passed else "below") in early["why"]
    if not passed:
        assert done.stderr.splitlines()[-1].startswith("Error: slow")
    # What was asked for beyond that is cancelled, not left to the daemon.
    assert len(daemon.cancelled) <= concurrency
    assert len(daemon.asked) <= summary["ok"] + concurrency


def test_an_unclear_rate_takes_all_proofs(files: Files, proofs: list[dict[str, Any]]) -> None:
    rng = random.Random(4)
    slow = [rng.choice((0.005, 0.08)) for _ in range(N)]
    minimum = 3600 / (sum(slow) / N)
    with serving(SlowDaemon(proofs.__getitem__, slow.__getitem__)) as daemon:
        done, summary = decided(files, daemon, "--min-proofs-per-hour", minimum)
    assert summary["stopped_early"] is None
    assert (summary["ok"], summary["left"]) == (N, 0)
    assert done.returncode == (1 if summary["slow"] else 0)
    low, high = summary["proofs_per_hour_90"]
    assert low < summary["proofs_per_hour"] < high


def test_without_the_test_all_proofs_are_made(files: Files, proofs: list[dict[str, Any]]) -> None:
    with serving(SlowDaemon(proofs.__getitem__, lambda k: 0.01)) as daemon:
        done, summary = decided(files, daemon, "--min-proofs-per-hour", 10, "--no-early-stop")
    assert (done.returncode, summary["ok"], summary["stopped_early"]) == (0, N, None)
    assert summary["backend"] == "stand-in"
    assert set(summary["phases_median_ms"]) == {"queue", "load", "synthesis", "compute", "verify"}
    assert summary["min_ms"] <= summary["quartiles_ms"][0] <= summary["median_ms"] <= summary["quartiles_ms"][1]


def test_a_daemon_that_lies_is_found_out(files: Files, proofs: list[dict[str, Any]], tmp_path: Path) -> None:
    """Proof 1 repeats proof 0, 2 is for other values, 3 is not of this key, 4 is no proof at all, 5 is no answer."""
    other = {**proofs[3], "proof": {**proofs[3]["proof"], "pi_a": proofs[4]["proof"]["pi_a"]}}
    answers = [
        proofs[0],
        proofs[0],
        {**proofs[2], "public": [str(int(value) + 1) for value in proofs[2]["public"]]},
        other,
        {"proof": {"pi_a": "nonsense"}, "public": []},
        {"proof": None},
        proofs[6],
    ]
    out, progress = tmp_path / "out", tmp_path / "p.jsonl"
    with serving(SlowDaemon(answers.__getitem__, lambda k: 0.0)) as daemon:
        common = ("--url", daemon.url, "--no-warm-up", "--json", "--out", out, "--progress", progress)
        done = run(bench(files, *common, proofs=len(answers)))
    summary = json.loads(done.stdout)
    assert done.returncode == 1
    assert (summary["ok"], summary["failed"]) == (2, 5)
    told = {i: (out / str(i) / "error.txt").read_text() for i in range(1, 6)}
    assert "given before" in told[1]
    assert "other public values" in told[2]
    assert "does not hold" in told[3]
    assert "proof_rejected" in told[4]
    assert "no proof" in told[5]
    assert {i for i in range(7) if (out / str(i) / "timings.json").exists()} == {0, 6}
    assert [event["index"] for event in events(progress) if event["event"] == "rejected"] == [1, 2, 3, 4]


def test_a_late_proof_fails_and_the_others_count(files: Files, proofs: list[dict[str, Any]]) -> None:
    with serving(SlowDaemon(proofs.__getitem__, lambda k: 0.0)) as daemon:
        run(bench(files, "--url", daemon.url, "--no-warm-up", "--deadline-s", 7, proofs=2))
        assert [request["deadline_s"] for request in daemon.asked] == [7, 7]
    done = run(bench(files, "--deadline-s", "0.001", "--json", proofs=2))
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["ok"], summary["failed"]) == (1, 0, 2)
    assert "deadline" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_the_figures_so_far(
    files: Files, proofs: list[dict[str, Any]], tmp_path: Path, signum: signal.Signals
) -> None:
    progress = tmp_path / "p.jsonl"
    with serving(SlowDaemon(proofs.__getitem__, lambda k: 0.05 if k < 5 else 60)) as daemon:
        command = bench(files, "--url", daemon.url, "--no-warm-up", "--json", "--progress", progress, proofs=N)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            wait_for(lambda: sum(event["event"] == "proof" for event in events(progress)) == 5)
            begun = time.monotonic()
            process.send_signal(signum)
            stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    assert time.monotonic() - begun < 30
    summary = json.loads(stdout)
    assert (summary["ok"], summary["failed"], summary["left"]) == (5, 0, N - 5)
    assert summary["interrupted"] == signum.name
    assert "Traceback" not in stderr
    assert len(daemon.cancelled) == 1
    assert events(progress)[-1]["event"] == "end"
