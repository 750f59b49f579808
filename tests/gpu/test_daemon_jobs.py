"""What the daemon does with many requests at once: order, cancelling, deadlines, partitions, keys, draining; and
what it tells of it. All against real daemon processes.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpu.child import OwnDaemon
from gpu.client import Client
from gpu.errors import DaemonFailed, KeyInUse
from gpu.groth16.engine import Engine
from gpu.groth16.formats import vkey_from_zkey
from gpu.groth16.ticket import Ticket
from gpu.groth16.verify import verify_many
from tests.gpu.conftest import SNARKJS_FIXTURES, Files
from tests.gpu.promtext import parse, value

pytestmark = pytest.mark.prover

FOLDER = SNARKJS_FIXTURES["bn254"]
ZKEY, WTNS = str(FOLDER / "circuit.zkey"), str(FOLDER / "witness.wtns")
BLOCKER = 60  # partitions, each a tenth of a second or more: long enough for what is tested meanwhile


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnDaemon]:
    with OwnDaemon(1, str(tmp_path_factory.mktemp("daemon") / "log")) as own:
        Client(own.url).prove("warm-up", ZKEY, WTNS)
        yield own


@pytest.fixture
def client(daemon: OwnDaemon) -> Client:
    return Client(daemon.url)


def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
    return found


def pipeline(client: Client, job: str) -> dict[str, Any]:
    return next(one for one in client.status()["pipelines"] if one["job_id"] == job)


@contextmanager
def busy(client: Client, job: str) -> Iterator[None]:
    """The daemon has a long job of low priority under way, cancelled in the end."""
    with ThreadPoolExecutor(1) as one:
        answer = one.submit(client.prove_many, job, ZKEY, [WTNS] * BLOCKER, priority=-100)
        until(lambda: any(p["job_id"] == job and p["partitions_done"] for p in client.status()["pipelines"]))
        try:
            yield
        finally:
            client.cancel(job)
            told = answer.result(60)
    # Proofs that were done are not taken back, the others say why there is none.
    assert told["done"] >= 1
    assert told["done"] + told["failed"] == BLOCKER
    names = {part["error"]["name"] for part in told["partitions"] if part["state"] == "failed"}
    assert names == {"cancelled"}


def test_higher_priorities_go_first_and_equal_ones_in_order(client: Client, daemon: OwnDaemon) -> None:
    with busy(client, "low"):
        for name, priority in (("a", 0), ("b", 5), ("c", 5), ("d", -5)):
            client.submit(f"order-{name}", ZKEY, WTNS, priority=priority)
        for name in "abcd":
            assert client.wait(f"order-{name}", 60)["proof"]
        assert pipeline(client, "low")["partitions_done"] < BLOCKER
    done = [line.split(",")[3] for line in timeline(daemon) if line.split(",")[2] == "DONE"]
    assert [name for name in done if name.startswith("order-")] == ["order-b", "order-c", "order-a", "order-d"]


def timeline(daemon: OwnDaemon) -> list[str]:
    lines = daemon.log_path.read_text().splitlines()
    return [line for line in lines if line.startswith("TIMELINE,")]


def test_the_timeline_tells_each_step(client: Client, daemon: OwnDaemon) -> None:
    client.prove("steps, with a comma", ZKEY, WTNS)
    mine = [line.split(",") for line in timeline(daemon) if "steps" in line]
    steps = ["QUEUED", "SYNTH_START", "SYNTH_END", "GPU_QUEUE", "GPU_PICKUP", "GPU_START", "GPU_END", "DONE"]
    assert [line[2] for line in mine] == steps
    assert {(len(line), line[3], line[4]) for line in mine} == {(5, "steps__with_a_comma", "partition=0")}
    times = [int(line[1]) for line in mine]
    assert times == sorted(times)


def test_cancel_while_queued_is_at_once_and_named(client: Client) -> None:
    with busy(client, "blocks-cancel"), ThreadPoolExecutor(1) as one:
        waiting = one.submit(client.prove, "unwanted", ZKEY, WTNS, priority=-200)
        until(lambda: any(p["job_id"] == "unwanted" for p in client.status()["pipelines"]))
        begun = time.monotonic()
        assert client.cancel("unwanted") == {"request_id": "unwanted", "state": "failed"}
        with pytest.raises(DaemonFailed, match="cancelled by request") as told:
            waiting.result(5)
        assert time.monotonic() - begun < 3
        assert told.value.name == "cancelled"
    assert client.prove("unwanted", ZKEY, WTNS)["proof"]  # the id may be used again


def test_cancel_of_the_unknown_and_of_the_done(client: Client) -> None:
    with pytest.raises(DaemonFailed, match="unknown"):
        client.cancel("never heard of")
    answer = client.prove("done / already?", ZKEY, WTNS)
    assert client.cancel("done / already?")["state"] == "done"
    assert client.wait("done / already?") == answer


def test_deadlines_queued_running_and_by_default(client: Client, tmp_path: Path) -> None:
    with busy(client, "blocks-deadline"):
        begun = time.monotonic()
        with pytest.raises(DaemonFailed, match="deadline") as late:
            client.prove("late", ZKEY, WTNS, priority=-200, deadline_s=0.3)
        assert time.monotonic() - begun < 3
        assert late.value.name == "deadline_exceeded"
    with pytest.raises(DaemonFailed, match="deadline"):
        client.prove("too late at once", ZKEY, WTNS, deadline_s=0.005)
    assert client.prove("in time", ZKEY, WTNS, deadline_s=100)["proof"]
    with started(tmp_path, "--deadline-s", "0.005") as (_, other), pytest.raises(DaemonFailed, match="deadline"):
        other.prove("late by default", ZKEY, WTNS)


def test_partitions_one_of_them_bad(client: Client, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.wtns"
    wrong.write_bytes(Path(WTNS).read_bytes()[:-32] + b"\xff" * 32)
    told = client.prove_many("parts", ZKEY, [WTNS, str(wrong), WTNS, "/nowhere"])
    assert (told["done"], told["failed"]) == (2, 2)
    states = [part["state"] for part in told["partitions"]]
    assert states == ["done", "failed", "done", "failed"]
    assert [part["index"] for part in told["partitions"]] == [0, 1, 2, 3]
    assert told["partitions"][1]["error"]["name"] == "bad_file"
    assert "not below" in told["partitions"][1]["error"]["message"]
    good = [(part["public"], part["proof"]) for part in told["partitions"] if part["state"] == "done"]
    assert verify_many(vkey_from_zkey(ZKEY), good) == [None, None]
    assert told["partitions"][0]["proof"] != told["partitions"][2]["proof"]
    for part in told["partitions"][::2]:
        assert set(part["timings_ms"]) == {"queue", "load", "synthesis", "compute", "verify"}
    seen = pipeline(client, "parts")
    assert (seen["total_partitions"], seen["partitions_done"]) == (4, 2)
    assert [part["state"] for part in seen["partitions"]] == states


def test_a_client_that_goes_away_and_comes_back(client: Client, daemon: OwnDaemon) -> None:
    before = client.status()["done"]
    body = json.dumps({"request_id": "left", "zkey": ZKEY, "wtns": WTNS}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(daemon.url.removeprefix("unix:"))
        connection.sendall(b"POST /prove HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        until(lambda: any(p["job_id"] == "left" for p in client.status()["pipelines"]))
    answer = client.wait("left", 30)
    assert answer["proof"]
    assert client.prove("left", ZKEY, WTNS) == answer == client.submit("left", ZKEY, WTNS)
    assert client.status()["done"] == before + 1


def test_submit_then_wait(client: Client) -> None:
    with busy(client, "blocks-wait"):
        assert client.submit("later", ZKEY, WTNS, priority=-200) == {"request_id": "later", "state": "queued"}
        assert client.wait("later", 0.05) == {"request_id": "later", "state": "queued"}
    assert client.wait("later", 60)["proof"]
    with pytest.raises(DaemonFailed, match="wait_s"):
        client.wait("later", 1e6)


def test_preload_and_evict(client: Client, all_small: dict[str, Files]) -> None:
    zkey = str(all_small["bls12381"].zkey)
    with pytest.raises(DaemonFailed, match="not in memory"):
        client.evict(zkey)
    assert client.preload(zkey)["curve"] == "bls12381"
    assert zkey in [key["path"] for key in client.status()["keys"]]
    assert client.prove("preloaded", zkey, str(all_small["bls12381"].wtns))["timings_ms"]["load"] < 50
    assert client.evict(zkey) == {"zkey": zkey}
    assert zkey not in [key["path"] for key in client.status()["keys"]]
    with pytest.raises(DaemonFailed, match="magic"):
        client.preload(WTNS)
    with busy(client, "holds-key"), pytest.raises(DaemonFailed, match="in use") as refused:
        until(lambda: client.evict(ZKEY))
    assert refused.value.name == "key_in_use"


def test_a_key_in_use_is_never_evicted_and_others_wait_for_room(all_small: dict[str, Files]) -> None:
    one, two = (str(files.zkey) for files in all_small.values())
    engine = Engine(key_budget=max(Path(one).stat().st_size, Path(two).stat().st_size) * 3 // 2)
    held = engine.keys.acquire(one, Ticket())
    with pytest.raises(KeyInUse):
        engine.keys.evict(one)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(engine.keys.acquire, two, Ticket())
        time.sleep(0.3)
        assert not other.done()
        assert [key["path"] for key in engine.keys.facts()] == [one]
        impatient = Ticket(deadline=time.monotonic() + 0.2)
        with pytest.raises(Exception, match="deadline"):
            engine.keys.acquire(two, impatient)
        engine.keys.release(held)
        engine.keys.release(other.result(30))
    assert [key["path"] for key in engine.keys.facts()] == [two]
    engine.close()


NUMBER, OPTIONAL = (int, float), (int, float, type(None))
SHAPE: dict[str, Any] = {
    "uptime_secs": float,
    "memory": {"total_bytes": int, "used_bytes": int, "available_bytes": int},
    "synthesis": {"max_concurrent": int, "active": int},
    "pipelines": [
        {
            "job_id": str,
            "proof_kind": str,
            "started_secs_ago": NUMBER,
            "total_partitions": int,
            "partitions_done": int,
            "partitions": [{"index": int, "state": str, "synth_ms": OPTIONAL, "gpu_ms": OPTIONAL}],
        }
    ],
    "gpu_workers": [
        {
            "worker_id": int,
            "gpu_ordinal": (int, type(None)),
            "state": str,
            "current_job": (str, type(None)),
            "current_partition": (int, type(None)),
            "busy_secs": OPTIONAL,
        }
    ],
    "allocations": {
        kind: [{"circuit_id": str, "bytes": int, "last_used_secs_ago": NUMBER, "evictable": bool}]
        for kind in ("srs", "pce")
    },
    "counters": {
        "total_completed": int,
        "total_failed": int,
        "completed_by_kind": dict,
        "failed_by_kind": dict,
        "queue_depth": int,
    },
    "buffers": dict.fromkeys(
        ("synth_in_flight", "provers_in_flight", "aux_in_flight", "shells_in_flight", "pending_handles"), int
    ),
}


def fits(given: Any, shape: Any) -> None:
    if isinstance(shape, dict):
        for name, inner in shape.items():
            fits(given[name], inner)
    elif isinstance(shape, list):
        assert isinstance(given, list)
        for one in given:
            fits(one, shape[0])
    else:
        assert isinstance(given, shape)
        assert isinstance(given, bool) is (shape is bool)


def test_the_status_has_cuzks_shape_while_proofs_are_made(client: Client) -> None:
    client.prove("shown", ZKEY, WTNS)
    with busy(client, "picture"):
        seen = until(lambda: (now := client.status())["gpu_workers"][0]["state"] == "proving" and now)
    fits(seen, SHAPE)
    assert {part["state"] for one in seen["pipelines"] for part in one["partitions"]} <= {
        *("pending", "synthesizing", "synth_done", "gpu", "done", "failed")
    }
    assert [one["job_id"] for one in seen["pipelines"]][-2:] == ["shown", "picture"]  # in the order they came
    assert seen["gpu_workers"][0]["current_job"] == "picture"
    assert sum(seen["counters"]["completed_by_kind"].values()) == seen["counters"]["total_completed"] > 0
    assert seen["counters"]["queue_depth"] > 0
    assert seen["memory"]["used_bytes"] > 0
    assert seen["memory"]["used_bytes"] + seen["memory"]["available_bytes"] == seen["memory"]["total_bytes"]
    key = next(one for one in seen["allocations"]["srs"] if one["circuit_id"] == "circuit.zkey")
    assert key["bytes"] > 0
    assert key["evictable"] is False


def test_the_metrics_are_prometheus_own_and_agree_with_the_status(client: Client) -> None:
    with pytest.raises(DaemonFailed):
        client.prove("counted as failed", ZKEY, "/nowhere")
    client.prove("counted", ZKEY, WTNS)
    families, seen = parse(client.metrics()), client.status()
    assert value(families, "cuzk_proofs_completed_total") == seen["done"]
    assert value(families, "cuzk_proofs_failed_total") == seen["failed"]
    assert value(families, "cuzk_proofs_completed", proof_kind="groth16-bn254") > 0
    assert value(families, "cuzk_proof_duration_seconds_count") == seen["done"]
    assert value(families, "cuzk_proof_duration_seconds", quantile="0.5") > 0
    assert value(families, "cuzk_proof_duration_seconds_sum") > 0
    assert value(families, "provefleet_failures_total", proof_kind="groth16-bn254", reason="bad_file") > 0
    assert value(families, "provefleet_key_bytes") == sum(key["n_bytes"] for key in seen["keys"])
    assert value(families, "provefleet_backend_info", backend=seen["backend"]) == 1
    assert value(families, "cuzk_queue_depth") == value(families, "cuzk_running_jobs") == 0
    assert value(families, "cuzk_gpu_workers") == len(seen["gpu_workers"])
    assert value(families, "cuzk_uptime_seconds") > 0
    assert {family.kind for family in families.values()} == {"counter", "gauge", "summary"}


@contextmanager
def started(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    path = folder / "s"
    command = [sys.executable, "-m", "provefleet", "serve", "--socket", str(path), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield process, Client(f"unix:{path}")
        finally:
            process.terminate()
            process.terminate()


def test_it_drains_even_when_nobody_reads_its_log(tmp_path: Path) -> None:
    with started(tmp_path) as (process, client):
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        with pytest.raises(DaemonFailed, match="cannot be read"):
            client.prove("unheard", ZKEY + "?", WTNS)
        process.send_signal(signal.SIGTERM)
        process.wait(20)


@pytest.mark.parametrize("how", ["limit", "second signal"])
def test_draining_can_be_cut_short(tmp_path: Path, how: str) -> None:
    options = ["--drain-s", "0.5"] if how == "limit" else []
    with started(tmp_path, *options) as (process, client), ThreadPoolExecutor(1) as one:
        client.preload(ZKEY)
        answer = one.submit(client.prove_many, "long", ZKEY, [WTNS] * 300)
        until(lambda: client.status()["done"] >= 1)
        process.send_signal(signal.SIGTERM)
        until(lambda: client.status()["state"] == "draining")
        with pytest.raises(DaemonFailed, match="about to stop") as refused:
            client.prove("new", ZKEY, WTNS)
        assert refused.value.name == "draining"
        if how == "second signal":
            process.send_signal(signal.SIGTERM)
        told = answer.result(30)
        _, log = process.communicate(timeout=30)
    assert process.returncode == 1
    assert told["done"] >= 1
    assert {p["error"]["message"] for p in told["partitions"] if p["state"] == "failed"} == {
        "the daemon was stopped before the proof was done; ask another one"
    }
    assert log.splitlines()[-1].startswith("Error: the daemon was stopped before every proof was done")
    assert "Traceback" not in log
    assert not (tmp_path / "s").exists()
