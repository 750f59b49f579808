"""What an instance goes through, and what its row says meanwhile."""

from __future__ import annotations

import socket

import pytest

from tests.fakes.conftest import Customer
from tests.fakes.vast import motion
from tests.fakes.vast.instances import Instance
from tests.fakes.vast.market import Market
from tests.fakes.vast.ssh import SshDoors


def states(customer: Customer, i: Instance) -> tuple[str | None, str, str, str]:
    row = customer.show(i)
    return row["actual_status"], row["intended_status"], row["cur_state"], row["next_state"]


def test_from_nothing_to_running(market: Market, customer: Customer) -> None:
    i = customer.rented(boot=False, runtype="ssh_direc ssh_proxy", env={"-p 8000:8000": "1", "-p 70000:70000/udp": "1"})
    seen: list[str | None] = []
    texts: list[str] = []
    for _ in range(60):
        row = customer.show(i)
        if row["actual_status"] not in seen[-1:]:
            seen.append(row["actual_status"])
        if row["actual_status"] == "loading":
            texts.append(row["status_msg"])
        if row["actual_status"] != "running":
            assert not row.get("ports")
            assert row["direct_port_start"] == -1
            assert row["public_ipaddr"].endswith("\n")
        market.advance(1)

    assert seen == [None, "created", "loading", "running"]
    assert any(text.endswith("Download complete") for text in texts)
    assert len(set(texts)) > 10, "the text moves on"
    row = customer.show(i)
    assert set(row["ports"]) == {"22/tcp", "8000/tcp", "70000/udp"}
    door = row["ports"]["22/tcp"][0]
    assert door["HostIp"] == "0.0.0.0"
    assert isinstance(door["HostPort"], str)
    assert int(door["HostPort"]) == row["direct_port_start"]
    assert row["ssh_host"].endswith(".vast.ai")
    assert isinstance(row["ssh_port"], int)
    assert row["uptime_mins"] > 0
    assert row["end_date"] > row["start_date"]
    assert row["duration"] == pytest.approx((i.end_ms - market.now_ms) / 1000)


def test_an_image_that_runs_its_own_process_has_no_ssh(market: Market, customer: Customer) -> None:
    i = customer.rented(runtype="args")

    assert customer.show(i)["ports"] == {}


def test_stopped_at_once_in_the_state_and_later_in_the_status(market: Market, customer: Customer) -> None:
    i = customer.rented()
    assert customer.set(i, state="stopped").json() == {"success": True}

    assert states(customer, i) == ("running", "stopped", "stopped", "stopped")
    market.advance(5)
    row = customer.show(i)
    assert states(customer, i)[0] == "exited"
    assert row["status_msg"].startswith("success, running"), "what it said last stays"
    assert row["gpu_temp"] is not None


def test_destroyed_is_null_and_unlisted_and_sold_again(market: Market, customer: Customer) -> None:
    i = customer.rented()
    assert customer.destroy(i).json() == {"success": True}

    assert customer.show(i) is None
    assert customer.page()["instances"] == []
    assert i.machine.offers
    again = customer.destroy(i)
    assert (again.status_code, again.json()["error"]) == (404, "no_such_instance")
    market.gone_form = "404"
    reply = customer.http.get(f"/api/v0/instances/{i.id}/")
    assert (reply.status_code, reply.json()["error"]) == (404, "no_such_instance")


def test_destroyed_while_it_loads(market: Market, customer: Customer) -> None:
    i = customer.rented(boot=False)
    market.advance(10)
    customer.destroy(i)

    market.advance(600)
    assert not i.live
    assert i.actual == "loading"


def test_many_at_once(market: Market, customer: Customer) -> None:
    three = [customer.rented() for _ in range(3)]

    ids = [i.id for i in three]
    assert customer.http.put("/api/v0/instances/", json={"state": "stopped", "ids": ids}).json()["success"]
    assert {i.cur for i in three} == {"stopped"}
    reply = customer.http.request("DELETE", "/api/v0/instances/", json={"instance_ids": [*ids[:2], 5]})
    assert reply.json()["destroyed"] == ids[:2]
    assert [i.live for i in three] == [False, False, True]


def test_outbid_and_back_by_itself(market: Market, customer: Customer) -> None:
    machine = market.add_machine(dollars_per_gpu_hour=0.4, min_bid_share=0.5)
    i = customer.rented(machine, price=0.25)

    motion.reprice(market, machine, 0.8)
    assert states(customer, i) == ("running", "stopped", "stopped", "stopped")
    market.advance(300)
    assert states(customer, i)[0] == "exited"
    motion.reprice(market, machine, 0.5)
    market.advance(10)
    assert states(customer, i) == ("running", "running", "running", "running")


def test_outbid_while_it_loads_shows_in_the_state_alone(market: Market, customer: Customer) -> None:
    i = customer.rented(market.add_machine(min_bid_share=0.5), price=0.3, boot=False)
    market.advance(15)
    market.life.outbid(i)

    market.advance(600)
    assert states(customer, i) == ("loading", "stopped", "stopped", "stopped")


def test_a_market_may_follow_another_clock() -> None:
    """One that jumps ahead, and once back."""
    times = [1_000_000]
    market = Market(now_ms=lambda: times[0])
    account = market.add_account("k" * 64)
    i = market.add_instance(account, "a", market.add_machine(dollars_per_gpu_hour=1.0))

    times[0] += 3_600_000
    assert market.bill_by_kind("a")["gpu"] == pytest.approx(1.0)
    times[0] -= 1_800_000
    assert market.bill_by_kind("a")["gpu"] == pytest.approx(1.0)
    with pytest.raises(ValueError, match="follows another clock"):
        market.advance(1)
    times[0] += 40 * 86_400_000
    assert market.live() == []
    assert i.destroyed_ms == i.end_ms + 48 * 3_600_000


def test_an_unreliable_market(market: Market, customer: Customer) -> None:
    market.life.unreliable = True
    good, bad = ([customer.rented(market.add_machine(trouble=share)) for _ in range(20)] for share in (0.0, 1.0))
    market.advance(600)

    assert {i.actual for i in good} == {"running"}
    fine = [i for i in bad if i.actual == "running" and not i.truth]
    assert len(fine) < 15


def test_reads_may_lag(market: Market, customer: Customer) -> None:
    market.read_lag_s = 5.0
    i = customer.rented(boot=False)

    assert customer.show(i) is None
    assert customer.page()["instances"] == []
    market.advance(5)
    assert customer.show(i)
    assert customer.page()["total_instances"] == 1


def test_a_new_bid(market: Market, customer: Customer) -> None:
    i = customer.rented(market.add_machine(dollars_per_gpu_hour=0.4, min_bid_share=0.5), price=0.25)
    fixed = customer.rented()

    def bid(which: Instance, price: object) -> int:
        return customer.http.put(f"/api/v0/instances/bid_price/{which.id}/", json={"price": price}).status_code

    assert bid(i, 0.3) == 200
    assert customer.show(i)["dph_base"] == 0.3
    assert bid(i, "much") == 400
    assert bid(fixed, 0.3) == 400
    assert bid(i, 0.1) == 200
    assert states(customer, i)[2] == "stopped"


def test_without_credit_all_stop_at_once(market: Market, customer: Customer) -> None:
    market.accounts[0].purse.pay(-24.0)
    three = [customer.rented(market.add_machine(dollars_per_gpu_hour=2.0)) for _ in range(3)]

    market.advance(900)

    assert {i.cur for i in three} == {"stopped"}
    assert {states(customer, i)[0] for i in three} == {"stopped"}
    credit = market.accounts[0].purse.credit
    market.advance(3600)
    assert market.accounts[0].purse.credit < credit < 0.01, "the disks go on"


def test_without_a_card_they_are_deleted_in_the_end(market: Market, customer: Customer) -> None:
    market.accounts[0].card = False
    i = customer.rented()
    market.accounts[0].purse.pay(-25)

    market.advance(3600)
    assert i.live
    market.advance(2 * 86_400)
    assert not i.live


def test_the_contract_ends(market: Market, customer: Customer) -> None:
    i = customer.rented(market.add_machine(duration_s=7200.0))

    market.advance(7200)
    assert states(customer, i)[1:] == ("stopped", "stopped", "stopped")
    market.advance(49 * 3600)
    assert not i.live


def test_a_container_that_ends(market: Market, customer: Customer) -> None:
    i = customer.rented(runtype="args")
    market.life.exit(i, 3)

    assert states(customer, i) == ("exited", "running", "running", "running")
    assert i.exit_code == 3


def test_reboot_keeps_the_log_and_recycle_does_not(market: Market, customer: Customer) -> None:
    i = customer.rented(onstart="echo hello")

    def starts() -> int:
        return b"".join(line for _, line in i.log).count(b"onstart: echo hello")

    assert starts() == 1
    customer.http.put(f"/api/v0/instances/reboot/{i.id}/", json={})
    assert states(customer, i)[0] == "rebooting"
    market.advance(10)
    assert (states(customer, i)[0], starts()) == ("running", 2)
    customer.http.put(f"/api/v0/instances/recycle/{i.id}/", json={})
    market.advance(60)
    assert (states(customer, i)[0], starts()) == ("running", 1)


def test_hooks_see_containers_come_and_go(market: Market, customer: Customer) -> None:
    seen: list[tuple[str, int]] = []
    market.on_rent = lambda i: seen.append(("rent", i.id))
    market.on_destroy = lambda i: seen.append(("destroy", i.id))

    i = customer.rented(boot=False)
    assert seen == []
    market.advance(60)
    customer.destroy(i)

    assert seen == [("rent", i.id), ("destroy", i.id)]


def test_labels(market: Market, customer: Customer) -> None:
    i = customer.rented()

    assert customer.set(i, label="other").json() == {"success": True}
    assert customer.show(i)["label"] == "other"
    assert customer.set(i, label="x" * 1025).status_code == 400
    assert customer.set(i, state="flying").status_code == 400


@pytest.mark.parametrize(("down", "up"), [("ssh_direct_up", "ssh_proxy_up"), ("ssh_proxy_up", "ssh_direct_up")])
def test_two_ways_to_ssh_each_up_or_down_by_itself(market: Market, customer: Customer, down: str, up: str) -> None:
    market.ssh = doors = SshDoors()
    try:
        i = customer.rented(boot=False, runtype="ssh_direc ssh_proxy")
        setattr(i, down, False)
        market.advance(60)
        row = customer.show(i)
        addresses = {
            "ssh_direct_up": (row["public_ipaddr"], int(row["ports"]["22/tcp"][0]["HostPort"])),
            "ssh_proxy_up": (row["ssh_host"], row["ssh_port"]),
        }

        with socket.create_connection(addresses[up], 5) as line:
            assert line.recv(8) == b"SSH-2.0-"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(addresses[down], 5)
        customer.destroy(i)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(addresses[up], 5)
    finally:
        doors.close()
