"""A rented instance ends itself, whatever becomes of its agent and of its controller: real processes, real HTTP."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from gpu.agent import self_destroy
from logs.chunks import open_frame
from logs.emergency import Emergency, unpack_emergency
from tests.fakes.controller import HttpServer, reply, wait_for
from tests.gpu.agent.conftest import Rig
from tests.gpu.agent.test_faults import alive, prover_pid

KEY, NUMBER = "instance-key-89ab", "4711"
AGREED, GONE = (200, b'{"success": true}'), (404, b'{"success": false, "error": "no_such_instance", "msg": "gone"}')


class Marketplace(HttpServer):
    """Takes DELETEs: answers them from `answers`, the last one for ever. `headers` go with every answer."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers or (AGREED, GONE))
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[float, str, str, str]] = []
        super().__init__()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        bearer = request.headers.get("Authorization", "")
        self.asked.append((time.monotonic(), request.command, request.path, bearer))
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        reply(request, status, body, self.headers)


@pytest.fixture
def market() -> Iterator[Marketplace]:
    market = Marketplace()
    yield market
    market.close()


def rent(rig: Rig, market: Marketplace, **variables: str) -> None:
    """Start the agent with what the marketplace, and our order to it, put into its environment."""
    rig.run(
        **{
            "CONTAINER_ID": NUMBER,
            "CONTAINER_API_KEY": KEY,
            "PROVEFLEET_SELF_DESTROY_URL": f"{market.url}/api/v0/instances/",
            "PROVEFLEET_HARD_DEADLINE_S": "600",
            "PROVEFLEET_EVIDENCE_DEADLINE_S": "20",
            **variables,
        }
    )


def agent_pid(rig: Rig) -> int:
    """The agent below the warden `rig.agent`."""

    def find() -> int | None:
        children = Path(f"/proc/{rig.agent.pid}/task/{rig.agent.pid}/children").read_text().split()
        words = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children]
        return int(children[0]) if words and b"gpu.agent" in words[0] and b"child.py" not in words[0] else None

    pid: int = wait_for(find)
    return pid


def ended_itself(rig: Rig, market: Marketplace, within_s: float = 30.0) -> None:
    wait_for(lambda: market.asked, within_s, what=f"the DELETE; the agent says: {rig.said()}")
    _, method, path, bearer = market.asked[0]
    assert (method, path, bearer) == ("DELETE", f"/api/v0/instances/{NUMBER}/", f"Bearer {KEY}")


def uploaded(rig: Rig) -> tuple[Emergency, dict[tuple[str, int], bytes]]:
    """The emergency zip, and its chunks by stream and number."""
    data, headers = rig.objects.put["emergency"]
    assert headers["If-None-Match"] == "*"
    emergency = unpack_emergency(io.BytesIO(data))
    return emergency, {(stream, record.seq): open_frame(frame, record) for stream, record, frame in emergency.chunks}


def test_told_to_exit_it_ends_the_instance(rig: Rig, market: Marketplace) -> None:
    """And before that, all is as without a warden; the key is nowhere but with the marketplace."""
    market.answers = [GONE]
    controller = rig.prepare("env", f"secret:{KEY}", proofs=2)
    rent(rig, market)
    assert rig.ended().exit_code == 0
    for pid in (rig.agent.pid, agent_pid(rig)):
        for file in ("environ", "cmdline"):
            assert KEY.encode() not in Path(f"/proc/{pid}/{file}").read_bytes()
    assert not market.asked
    assert rig.seal_and_exit() == 0
    ended_itself(rig, market)
    shipped = b"".join(controller.raw.values()) + b"".join(d for t in controller.tails.values() for _, d in t)
    assert KEY.encode() not in shipped
    assert KEY not in rig.said()
    assert b"a warden ends this instance" in controller.raw["setup"]
    prover = json.loads(next(line for line in rig.bench().splitlines() if line.startswith(b"{")))
    assert not {"CONTAINER_API_KEY", "PROVEFLEET_WARDEN_FD", "PROVEFLEET_BOOTSTRAP_TOKEN"} & set(prover)


def test_without_a_controller_it_seals_then_ends_the_instance(rig: Rig, market: Marketplace) -> None:
    controller = rig.prepare("hang", proofs=1)
    controller.lease_s = 4.0
    rent(rig, market)
    wait_for(lambda: len(controller.records.get("bench", [])) >= 2)
    pid = prover_pid(rig)
    controller.down = True
    down = time.monotonic()
    ended_itself(rig, market)
    assert market.asked[0][0] - down < 4 + 15
    assert not alive(pid)
    emergency, chunks = uploaded(rig)
    assert "the lease could not be renewed" in emergency.manifest["reason"]
    assert b"stops the stage" in b"".join(raw for (stream, _), raw in chunks.items() if stream == "setup")


def test_a_killed_agent_s_spool_is_packed_by_its_warden(rig: Rig, market: Marketplace) -> None:
    """Chunks that were never acknowledged, up to one that was being written: what can be had is had, and no end is
    claimed."""
    controller = rig.prepare("hang", proofs=1)
    rent(rig, market)
    wait_for(lambda: len(controller.records.get("bench", [])) >= 2)
    controller.answer = lambda path: (503, "unavailable") if "/chunks/bench" in path else None
    have = len(controller.records["bench"])
    spool = rig.work / "spool" / "bench"
    wait_for(lambda: len(list(spool.iterdir())) >= have + 3)
    prover, agent = prover_pid(rig), agent_pid(rig)
    os.kill(agent, signal.SIGSTOP)
    newest = max(spool.iterdir())
    os.truncate(newest, newest.stat().st_size - 10)
    os.kill(agent, signal.SIGKILL)
    ended_itself(rig, market)
    assert not alive(prover)
    assert not list((rig.work / "witnesses").glob("*")), "witnesses are deleted"
    emergency, chunks = uploaded(rig)
    assert "killed by signal 9" in emergency.manifest["reason"]
    assert emergency.manifest["instance"] == "a" * 32
    assert emergency.manifest["streams"] == {}
    seqs = [seq for stream, seq in chunks if stream == "bench"]
    assert seqs[0] <= have
    assert seqs == list(range(seqs[0], int(newest.stem)))
    assert all(b"still here" in chunks["bench", seq] for seq in seqs)


@pytest.mark.crash
def test_a_stopped_agent_is_ended_with_its_lease(rig: Rig, market: Marketplace) -> None:
    """It renews nothing and says nothing: the warden knows when its lease was over."""
    controller = rig.prepare("hang", proofs=1)
    controller.lease_s = 2.0
    rent(rig, market, PROVEFLEET_EVIDENCE_DEADLINE_S="3")
    wait_for(lambda: len(controller.records.get("bench", [])) >= 1)
    agent = agent_pid(rig)
    os.kill(agent, signal.SIGSTOP)
    ended_itself(rig, market, 40)
    assert not alive(agent)
    assert "emergency" in rig.objects.put


def test_a_hard_deadline_ends_it_though_the_controller_would_go_on(rig: Rig, market: Marketplace) -> None:
    rig.prepare("hang", proofs=1)
    rent(rig, market, PROVEFLEET_HARD_DEADLINE_S="4")
    wait_for(lambda: b"still here" in rig.bench())
    ended_itself(rig, market)
    assert "hard deadline" in rig.said()
    assert b"ends: SIGTERM" in rig.controller.raw["setup"], "its last words are shipped"


def test_an_agent_that_never_registers_ends_the_instance(rig: Rig, market: Marketplace) -> None:
    controller = rig.prepare()
    controller.answer = lambda path: (409, "past_registering") if path == "/register" else None
    rent(rig, market)
    ended_itself(rig, market)


def test_an_agent_that_can_t_start_ends_the_instance(rig: Rig, market: Marketplace) -> None:
    rig.prepare()
    rent(rig, market, PROVEFLEET_AGENT_URL="no address")
    ended_itself(rig, market)
    assert "PROVEFLEET_AGENT_URL must be" in rig.said()


def test_a_container_that_is_stopped_ends_for_good(rig: Rig, market: Marketplace) -> None:
    """A stopped instance would go on billing its disk."""
    rig.prepare("hang", proofs=1)
    rent(rig, market)
    wait_for(lambda: b"still here" in rig.bench())
    rig.agent.terminate()
    ended_itself(rig, market)
    assert b"ends: SIGTERM" in rig.controller.raw["setup"]


@pytest.mark.crash
def test_an_archive_that_is_away_too_costs_the_evidence_and_not_the_money(rig: Rig, market: Marketplace) -> None:
    controller = rig.prepare("hang", proofs=1)
    controller.lease_s = 3.0
    rig.objects.refuse_put = 503
    rent(rig, market, PROVEFLEET_EVIDENCE_DEADLINE_S="3")
    wait_for(lambda: controller.records.get("bench"))
    controller.down = True
    down = time.monotonic()
    ended_itself(rig, market, 40)
    assert market.asked[0][0] - down < 3 + 3 + 20


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"CONTAINER_API_KEY": ""}, "gave no CONTAINER_ID and CONTAINER_API_KEY"),
        ({"CONTAINER_ID": "../../users"}, "gave no CONTAINER_ID and CONTAINER_API_KEY"),
        ({"PROVEFLEET_SELF_DESTROY_URL": "http://market.example.com/api/v0/instances/"}, "must be https"),
        ({"PROVEFLEET_HARD_DEADLINE_S": ""}, "PROVEFLEET_HARD_DEADLINE_S must be a number"),
        ({"PROVEFLEET_EVIDENCE_DEADLINE_S": "nan"}, "PROVEFLEET_EVIDENCE_DEADLINE_S must be a number"),
    ],
)
def test_what_could_not_end_itself_does_not_begin(
    rig: Rig, market: Marketplace, variables: dict[str, str], said: str
) -> None:
    rig.prepare()
    rent(rig, market, **variables)
    assert rig.agent.wait(10) == 2
    assert said in rig.said()
    assert KEY not in rig.said()
    assert not rig.controller.registered


def test_a_warden_is_small(rig: Rig, market: Marketplace) -> None:
    controller = rig.prepare("hang", proofs=1)
    rent(rig, market)
    wait_for(lambda: len(controller.leases) > 3)
    rollup = Path(f"/proc/{rig.agent.pid}/smaps_rollup").read_text().splitlines()
    own_kib = sum(int(line.split()[1]) for line in rollup if line.startswith(("Private_Clean", "Private_Dirty")))
    assert own_kib < 5 * 1024, own_kib


class Clock:
    """A `sleep` that takes no time, and remembers."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def test_it_asks_until_the_marketplace_says_gone(market: Marketplace) -> None:
    """Whatever comes back, and however often: only "no such instance" ends it."""
    market.answers = [
        (429, b"API requests too frequent endpoint threshold=3.0"),
        (500, b"<html>oops</html>"),
        (404, b'{"success": false, "error": "auth_error", "msg": "Invalid user key"}'),
        (404, b"<html>not here</html>"),
        (200, b'{"success": false, "error": "busy ' + KEY.encode() + b'"}'),
        (200, b"<html>maintenance</html>"),
        (200, b""),
        (200, b"[1]"),
        AGREED,
        (200, b'{"success": true}'),
        GONE,
    ]
    lines: list[str] = []
    sleep = Clock()
    self_destroy.end_instance(f"{market.url}/api/v0/instances/7/", KEY, lines.append, sleep)
    assert len(market.asked) == 11
    waits = sleep.slept[:8]
    assert all(wait >= 0.8 * 3.0 for wait in waits)
    assert max(waits) <= 60 * 1.2
    assert waits[7] > waits[0]
    assert sleep.slept[8:] == [self_destroy.SETTLE_S] * 2
    assert not [line for line in lines if KEY in line]
    assert "auth_error" in "\n".join(lines)


def test_it_waits_as_long_as_it_is_told_to(market: Marketplace) -> None:
    market.headers = {"Retry-After": "41"}
    market.answers = [(429, b"{}"), GONE]
    sleep = Clock()
    self_destroy.end_instance(f"{market.url}/7/", KEY, lambda line: None, sleep)
    assert sleep.slept == [41.0]


def test_the_key_follows_no_redirect(market: Marketplace) -> None:
    elsewhere = Marketplace(GONE)
    try:
        market.headers = {"Location": f"{elsewhere.url}/api/v0/instances/7/"}
        market.answers = [(308, b""), GONE]
        self_destroy.end_instance(f"{market.url}/api/v0/instances/7/", KEY, lambda line: None, Clock())
        assert len(market.asked) == 2
        assert not elsewhere.asked
    finally:
        elsewhere.close()


def test_nobody_there_is_asked_again() -> None:
    lines: list[str] = []
    waits: list[float] = []

    class Enough(Exception):
        pass

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise Enough

    with pytest.raises(Enough):
        self_destroy.end_instance("http://127.0.0.1:1/7/", KEY, lines.append, sleep)
    assert len(lines) == 1, "the same trouble is told once"
    assert "ConnectionRefusedError" in lines[0]
