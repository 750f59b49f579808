"""The daemon over real sockets: proofs, refusals, idempotent ids, eviction, draining."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpu.child import OwnDaemon
from gpu.client import Client
from gpu.errors import DaemonFailed, Refused
from gpu.groth16.engine import Engine
from gpu.groth16.formats import vkey_from_zkey
from gpu.groth16.verify import verify_independent
from tests.gpu.conftest import Files

pytestmark = pytest.mark.prover


@pytest.fixture(scope="module")
def daemon() -> Iterator[OwnDaemon]:
    with OwnDaemon(2) as own:
        yield own


@pytest.fixture
def client(daemon: OwnDaemon) -> Client:
    return Client(daemon.url)


def raw_request(url: str, raw: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(url.removeprefix("unix:"))
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_socket_is_private(daemon: OwnDaemon) -> None:
    mode = os.stat(daemon.url.removeprefix("unix:")).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_a_proof_and_the_same_request_again(client: Client, small: Files) -> None:
    first = client.prove(f"twice-{small.curve.name}", str(small.zkey), str(small.wtns))
    verify_independent(vkey_from_zkey(small.zkey), first["public"], first["proof"])
    assert set(first["timings_ms"]) == {"queue", "load", "synthesis", "compute", "verify"}
    assert client.prove(f"twice-{small.curve.name}", str(small.zkey), str(small.wtns)) == first
    assert any(key["path"] == str(small.zkey) for key in client.status()["keys"])


def test_a_request_id_is_one_job_even_when_asked_at_once(client: Client, small: Files) -> None:
    request = (f"same-{small.curve.name}", str(small.zkey), str(small.wtns))
    before = client.status()["done"]
    with ThreadPoolExecutor(4) as many:
        answers = list(many.map(lambda _: client.prove(*request), range(4)))
    assert answers.count(answers[0]) == 4
    assert client.status()["done"] == before + 1
    with pytest.raises(DaemonFailed, match="used with other files"):
        client.prove(request[0], str(small.wtns), str(small.zkey))


def test_refusals_are_named_and_the_daemon_lives_on(client: Client, daemon: OwnDaemon, small: Files) -> None:
    with pytest.raises(DaemonFailed, match="magic"):
        client.prove("bad", str(small.wtns), str(small.wtns))
    with pytest.raises(DaemonFailed, match="cannot be read"):
        client.prove("bad", "/nowhere", str(small.wtns))
    body = b'{"request_id": 3}'
    for raw, status in (
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /prove HTTP/1.1\r\n\r\n", b"413"),
        (b"POST /prove HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", b"413"),
        (b"POST /prove HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"413"),
        (b"POST /prove HTTP/1.1\r\nContent-Length: 9\r\n\r\n{\xff\xfe[[[[[[", b"400"),
        (b"POST /prove HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body), b"400"),
        (b"DELETE /prove HTTP/1.1\r\n\r\n", b"404"),
        (b"PATCH /prove HTTP/1.1\r\n\r\n", b"501"),
        (b"\x00\x01\x02\x03\r\n\r\n", b"400"),
    ):
        answer = raw_request(daemon.url, raw)
        assert status in answer, raw
        assert b'{"error": {"name": ' in answer, raw
    assert client.status()["state"] == "ready"
    assert client.status()["active"] == 0


def test_a_failed_request_may_be_tried_again(client: Client, small: Files, tmp_path: Path) -> None:
    late = tmp_path / "late.wtns"
    with pytest.raises(DaemonFailed):
        client.prove(f"again-{small.curve.name}", str(small.zkey), str(late))
    late.write_bytes(small.wtns.read_bytes())
    assert client.prove(f"again-{small.curve.name}", str(small.zkey), str(late))["proof"]


def test_loopback_wants_the_token(small: Files, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PROVEFLEET_DAEMON_TOKEN"}
    command = [sys.executable, "-m", "provefleet", "serve", "--bind", "127.0.0.1:0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split()[-1]
            token = process.stdout.readline().split()[-1]
            assert Client(url, token).status()["state"] == "ready"
            for wrong in (None, "guess", token[:-1]):
                with pytest.raises(DaemonFailed, match="token"):
                    Client(url, wrong).status()
            connection = http.client.HTTPConnection("127.0.0.1", int(url.rsplit(":", 1)[1]), timeout=10)
            connection.request("POST", "/prove", json.dumps({"request_id": "x", "zkey": "/a", "wtns": "/b"}))
            assert connection.getresponse().status == 401
            connection.close()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "192.168.0.1:80", "127.0.0.1:99999", "localhost"])
def test_other_addresses_are_refused(bind: str) -> None:
    command = [sys.executable, "-m", "provefleet", "serve", "--bind", bind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "loopback" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_taken_socket_is_refused_and_a_stale_one_replaced(daemon: OwnDaemon, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "provefleet", "serve", "--socket"]
    taken = daemon.url.removeprefix("unix:")
    done = subprocess.run([*command, taken], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "another daemon" in done.stderr
    stale = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(stale))
    with subprocess.Popen([*command, str(stale)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert not stale.exists()


def test_sigterm_drains(small: Files, tmp_path: Path) -> None:
    """The proof under way is answered, then the daemon leaves with 0."""
    path = tmp_path / "s"
    command = [sys.executable, "-m", "provefleet", "serve", "--socket", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        client = Client(f"unix:{path}")
        with ThreadPoolExecutor(3) as many:
            asked = [many.submit(client.prove, str(i), str(small.zkey), str(small.wtns)) for i in range(3)]
            while client.status()["active"] < 3:
                pass
            process.send_signal(signal.SIGTERM)
            assert all(answer.result()["proof"] for answer in asked)
        assert process.wait(20) == 0
        log = process.stderr.read()
    assert log.count(" ok ") == 3
    assert "Traceback" not in log


def test_the_least_recently_used_key_leaves_first(all_small: dict[str, Files], tmp_path: Path) -> None:
    one, two = all_small.values()
    budget = one.zkey.stat().st_size + two.zkey.stat().st_size
    engine = Engine(key_budget=budget)
    for files in (one, two):
        engine.prove(str(files.zkey), str(files.wtns))
    assert [key["path"] for key in engine.keys.facts()] == [str(two.zkey)]
    with pytest.raises(Refused, match="MiB"):
        Engine(key_budget=100).prove(str(one.zkey), str(one.wtns))


def test_a_key_file_that_changes_is_loaded_anew(small: Files, tmp_path: Path, engine: Engine) -> None:
    from gpu.groth16.setup import write_development_key

    zkey = tmp_path / "k.zkey"
    for _ in range(2):
        write_development_key(small.r1cs, zkey)
        done = engine.prove(str(zkey), str(small.wtns))
        verify_independent(vkey_from_zkey(zkey), done.public, done.proof)
