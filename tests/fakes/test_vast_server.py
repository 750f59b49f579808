"""The market on a socket, its own API, and the program."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.conftest import IMAGE, KEY, Customer
from tests.fakes.vast.app import serve
from tests.fakes.vast.market import START_MS, Market

ROOT = Path(__file__).parents[2]


@pytest.fixture
def control(customer: Customer) -> Control:
    return Control(customer.http)


class Control:
    """The fake's own API."""

    def __init__(self, http: httpx.Client):
        self._http = http

    def get(self, name: str, /, **query: Any) -> Any:
        reply = self._http.get(f"/_fake/{name}", params=query)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def post(self, name: str, /, **body: Any) -> Any:
        reply = self._http.post(f"/_fake/{name}", json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()


def test_everything_can_be_arranged_from_outside(market: Market, customer: Customer, control: Control) -> None:
    made = control.post("machine", gpu_name="RTX 3090", num_gpus=2)
    control.post("scenario", name="N16")
    number = customer.create(made["offers"][0], label="app:1").json()["new_contract"]
    control.post("advance", seconds=200)

    assert control.get("instances")[0]["actual_status"] == "exited"
    assert control.post("instance", id=number, event="running")["actual_status"] == "running"
    assert control.post("traffic", id=number, down_bytes=10**9)["bwd"] > 0
    assert control.get("bill", what="app:1")["total"] == pytest.approx(market.bill(number))
    control.post("fault", route="GET /api/v1/instances", kind="500_before")
    assert customer.http.get("/api/v1/instances/").status_code == 500
    control.post("fault", route="GET /api/v1/instances", kind="500_before")
    control.post("clear")
    assert customer.http.get("/api/v1/instances/").status_code == 200
    control.post("settings", enforce=True, search_quota=0)
    assert customer.http.post("/api/v0/bundles/", json={}).status_code == 429
    assert control.post("credit", dollars=1.5)["credit"] == 1.5
    control.post("account", key="f" * 64, credit=3)
    assert len(control.post("offers", count=5)["offers"]) == 5
    assert control.post("tick")["offers"] > 0
    state = control.get("state")
    assert state["live"] == 1
    assert state["accounts"][0]["name"] == "operator"
    assert "N25:stale" in control.get("scenarios")


def test_nothing_that_it_tells_holds_a_key(market: Market, customer: Customer, control: Control) -> None:
    customer.http.get("/api/v1/instances/", params={"api_key": KEY})
    customer.http.get("/api/v1/instances/")
    customer.http.put("/api/v0/asks/5/", content=b"{broken")

    assert len(control.get("requests")) == 3
    for name in ("state", "requests", "violations", "instances", "offers"):
        assert market.key_seen_in(str(control.get(name))) == []
    assert control.get("violations")


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("scenario", {"name": "N99"}, 400),
        ("instance", {"id": 5, "event": "stop"}, 400),
        ("settings", {"lock": 1}, 400),
        ("advance", {}, 400),
        ("bananas", {}, 404),
    ],
)
def test_orders_that_make_no_sense(customer: Customer, name: str, body: dict[str, Any], status: int) -> None:
    reply = customer.http.post(f"/_fake/{name}", json=body)

    assert reply.status_code == status
    assert reply.json()["error"]


@pytest.fixture
def served(market: Market) -> Iterator[httpx.Client]:
    """A socket, its clock a hundred times as fast as the wall's."""
    with (
        serve(market, speed=100.0) as server,
        httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {KEY}"}) as client,
    ):
        yield client


def until(client: httpx.Client, path: str, words: str) -> httpx.Response:
    """The first answer that has `words` in it, within ten seconds."""
    end = time.monotonic() + 10
    while words not in (reply := client.get(path)).text:
        assert time.monotonic() < end, reply.text[:500]
        time.sleep(0.02)
    return reply


def test_on_a_socket_time_passes_by_itself(market: Market, served: httpx.Client) -> None:
    market.add_machine()
    offer = served.post("/api/v0/bundles/", json={}).json()["offers"][0]
    number = served.put(f"/api/v0/asks/{offer['id']}/", json={"image": IMAGE}).json()["new_contract"]
    until(served, f"/api/v0/instances/{number}/", '"actual_status": "running"')

    url = served.put(f"/api/v0/instances/request_logs/{number}/", json={}).json()["result_url"]
    assert url.startswith(str(served.base_url).rstrip("/"))
    with httpx.Client() as store:
        assert f"container {number} starts" in until(store, url, "starts").text
    assert market.now_ms > START_MS


def test_on_a_socket_connections_really_break(market: Market, served: httpx.Client) -> None:
    market.fault("GET /api/v1/instances", "reset_before")
    with pytest.raises(httpx.TransportError):
        served.get("/api/v1/instances/")
    market.fault("GET /api/v1/instances", "timeout_after")
    with pytest.raises(httpx.ReadTimeout):
        served.get("/api/v1/instances/", timeout=0.3)
    assert served.get("/api/v1/instances/").status_code == 200


def test_the_program(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.vast", "--port", "0", "--offers", "5", "--scenario", "N31"],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert program.stdout is not None
        first, second = program.stdout.readline(), program.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+", first)
        assert url
        assert f"PROVEFLEET_VAST_URL={url[0]}" in second
        assert httpx.get(f"{url[0]}/_fake/state").json()["offers"] == 5
        assert httpx.post(f"{url[0]}/api/v0/bundles/", json={}).json()["error"] == "search_quota_exceeded"
        program.send_signal(signal.SIGTERM)
        assert program.wait(10) == 0
        assert "1 requests" in program.stdout.read()
    finally:
        program.kill()
        program.wait()
        if program.stdout:
            program.stdout.close()


def test_the_program_says_what_is_wrong() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fakes.vast", "--scenario", "N99"], capture_output=True, text=True, cwd=ROOT
    )

    assert done.returncode == 2
    assert "no scenario is called 'N99'" in done.stderr
    assert "Traceback" not in done.stderr
