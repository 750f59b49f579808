"""A rented instance runs a real agent, and is destroyed by it when its controller does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.fakes.controller import Controller, make_spec, wait_for
from tests.fakes.vast.app import serve
from tests.fakes.vast.boot import Boots
from tests.fakes.vast.instances import Instance
from tests.fakes.vast.market import Market
from tests.fakes.vast.server import Served

KEY = "account-key-0123456789"


class Rented:
    """A market on a socket whose instances run agents of `controller`."""

    def __init__(self, folder: Path):
        self.market = Market(3)
        self.market.add_account(KEY)
        self.market.add_machine("RTX 4090", reliability=0.99)
        self.market.pull_s = 0.2
        self.served: Served = serve(self.market, speed=20.0)
        self.boots = Boots(self.market, folder / "machines", folder / "kernels")
        self.controller = Controller(make_spec(["/bin/sleep", "600"], [], 0))

    def rent(self) -> Instance:
        offer = next(iter(self.market.offers))
        env = {
            "PROVEFLEET_AGENT_URL": self.controller.url,
            "PROVEFLEET_BOOTSTRAP_TOKEN": "bootstrap-secret-0123",
            "PROVEFLEET_SELF_DESTROY_URL": f"{self.served.url}/api/v0/instances/",
            "PROVEFLEET_HARD_DEADLINE_S": "600",
            "PROVEFLEET_EVIDENCE_DEADLINE_S": "5",
        }
        body = {"image": "r/i@sha256:" + "0" * 64, "disk": 16, "runtype": "args", "env": env, "label": "x"}
        answer = httpx.put(
            f"{self.served.url}/api/v0/asks/{offer}/", json=body, headers={"Authorization": f"Bearer {KEY}"}
        ).json()
        return self.market.instances[answer["new_contract"]]

    def close(self) -> None:
        self.boots.close()
        self.served.close()
        self.controller.close()


@pytest.fixture
def rented(tmp_path: Path) -> Iterator[Rented]:
    rented = Rented(tmp_path)
    yield rented
    rented.close()


def test_it_registers_with_what_vast_gave_it_and_shows_the_gpu_of_its_row(rented: Rented) -> None:
    i = rented.rent()
    registered = wait_for(lambda: rented.controller.registered)[0]
    assert [gpu["name"] for gpu in registered.facts["gpus"]] == ["RTX 4090"]
    wait_for(lambda: i.log_source and b"registered as instance" in i.log_source())
    process = rented.boots.process_of(i)
    assert process is not None
    family = [process, *process.children(recursive=True)]
    assert len(family) >= 2
    with rented.market.lock:
        rented.market.life.destroy(i)
    assert rented.boots.process_of(i) is None
    psutil.wait_procs(family, 5)
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_without_its_controller_it_destroys_itself(rented: Rented) -> None:
    rented.controller.lease_s = 2.0
    i = rented.rent()
    wait_for(lambda: rented.controller.leases)
    rented.controller.down = True
    wait_for(lambda: not i.live, 30)
    deletes = [seen for seen in rented.market.requests if seen.route.startswith("DELETE")]
    assert [seen.identity for seen in deletes] == [f"instance:{i.id}"]
    assert wait_for(lambda: rented.boots.process_of(i) is None)


def test_the_end_of_the_process_is_the_end_of_the_container(rented: Rented) -> None:
    i = rented.rent()
    process = wait_for(lambda: rented.boots.process_of(i))
    process.kill()
    wait_for(lambda: i.actual == "exited")
    assert (i.exit_code, i.intended) == (137, "running")
    assert i.live, "it goes on billing: nobody was left who could have ended it"


def test_a_stopped_instance_ends_its_container(rented: Rented) -> None:
    """And the agent takes the chance to end it for good."""
    i = rented.rent()
    wait_for(lambda: rented.controller.registered)
    with rented.market.lock:
        rented.market.life.outbid(i)
    wait_for(lambda: not i.live, 30)
