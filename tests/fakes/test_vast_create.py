"""The create call: what it makes, and each way in which it is refused."""

from __future__ import annotations

import json

import pytest

from tests.fakes.conftest import IMAGE, Customer
from tests.fakes.vast import motion
from tests.fakes.vast.market import Market


def test_an_order_becomes_an_instance(market: Market, customer: Customer) -> None:
    market.add_machine(dollars_per_gpu_hour=0.36, storage_dollars_per_gb_month=0.144)
    offer = next(iter(market.offers.values()))

    reply = customer.create(
        offer, label="app:1", env={"A": "b", "-p 8000:8000": "1"}, disk=50, runtype="args", args=["x"]
    )

    body = reply.json()
    assert (reply.status_code, body["success"]) == (200, True)
    i = market.instances[body["new_contract"]]
    assert (i.label, i.image, i.disk_gb, i.is_bid, i.args) == ("app:1", IMAGE, 50.0, False, ["x"])
    assert i.env["A"] == "b"
    assert i.env["CONTAINER_ID"] == str(i.id)
    assert i.env["CONTAINER_API_KEY"] == body["instance_api_key"] == i.key
    assert i.env["VAST_CONTAINERLABEL"] == f"C.{i.id}"
    assert "VAST_TCP_PORT_8000" in i.env
    assert "-p 8000:8000" not in i.env
    row = customer.show(i)
    assert row["dph_total"] == pytest.approx(0.36 + 0.144 * 50 / 720)
    assert row["extra_env"] == [["A", "b"], ["-p 8000:8000", "1"]]
    assert offer.id not in market.offers


def test_an_offer_that_is_gone_says_so_in_three_ways(market: Market, customer: Customer) -> None:
    forms = []
    for _ in range(3):
        reply = customer.create(123456)
        forms.append((reply.status_code, reply.json()["error"]))
        assert reply.json()["ask_id"] == 123456
        assert "no_such_ask" in reply.json()["msg"]

    assert forms == [(400, "invalid_args"), (404, "no_such_ask"), (410, "no_such_ask")]
    assert not market.instances


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"image": None}, 400, "invalid_args"),
        ({"disk": 4}, 400, "invalid_args"),
        ({"disk": 10**6}, 400, "invalid_args"),
        ({"disk": "big"}, 400, "invalid_args"),
        ({"label": "x" * 257}, 400, "invalid_args"),
        ({"price": 0.0001}, 400, "invalid_price"),
        ({"price": 129}, 400, "invalid_price"),
        ({"onstart": "x" * 4000, "args": ["y" * 97]}, 400, "invalid_args"),
        ({"env": {"A": "x" * 257}}, 400, "invalid_args"),
        ({"env": {str(n): "x" * 200 for n in range(200)}}, 400, "invalid_args"),
        ({"runtype": "telnet"}, 400, "invalid_args"),
        ({"target_state": "asleep"}, 400, "invalid_args"),
        ({"image_login": "-u a b -p c d registry"}, 400, "invalid_args"),
        ({"args": "not an array"}, 400, "invalid_args"),
        ({"runtype": "vm"}, 400, "no_ssh_key_for_vm"),
    ],
)
def test_an_order_that_is_refused(
    market: Market, customer: Customer, body: dict[str, object], status: int, error: str
) -> None:
    market.add_machine()

    reply = customer.create(next(iter(market.offers)), **body)

    assert (reply.status_code, reply.json()["error"]) == (status, error)
    assert not market.instances


def test_an_environment_as_text_is_not_applied(market: Market, customer: Customer) -> None:
    i = customer.rented(env="-e A=b")

    assert "A" not in i.env
    assert customer.show(i)["extra_env"] == []


def test_no_credit_no_machine(market: Market, customer: Customer) -> None:
    market.add_machine()
    market.accounts[0].purse.pay(-25.0)

    reply = customer.create(next(iter(market.offers)))

    assert (reply.status_code, reply.json()["error"]) == (400, "insufficient_credit")
    assert "lacks credit" in reply.json()["msg"]


def test_what_new_accounts_and_hosts_may_not(market: Market, customer: Customer) -> None:
    market.add_machine()
    offer = next(iter(market.offers))

    market.accounts[0].spend_capped = True
    assert customer.create(offer).json()["error"] == "spend_rate_limit"
    market.accounts[0].is_host = True
    reply = customer.create(offer)
    assert (reply.status_code, reply.json()["error"]) == (403, "invalid_args")


def test_a_price_makes_it_interruptible_and_none_makes_it_on_demand(market: Market, customer: Customer) -> None:
    bid = customer.rented(market.add_machine(dollars_per_gpu_hour=0.4, min_bid_share=0.5), price=0.25)
    full = customer.rented(market.add_machine(dollars_per_gpu_hour=0.4, min_bid_share=0.5))

    assert (customer.show(bid)["is_bid"], customer.show(bid)["dph_base"]) == (True, 0.25)
    assert (customer.show(full)["is_bid"], customer.show(full)["dph_base"]) == (False, 0.4)


def test_a_bid_below_the_market_leaves_a_stopped_instance_that_costs(market: Market, customer: Customer) -> None:
    machine = market.add_machine(dollars_per_gpu_hour=0.4, min_bid_share=0.5)

    reply = customer.create(next(iter(machine.offers.values())), price=0.1, label="low")

    assert reply.status_code == 400
    i = market.instances[reply.json()["new_contract"]]
    market.advance(3600)
    row = customer.show(i)
    assert (row["cur_state"], row["intended_status"], row["next_state"]) == ("stopped", "stopped", "stopped")
    assert market.bill_by_kind("low")["gpu"] == 0
    assert market.bill_by_kind("low")["disk"] > 0
    assert machine.offers, "its GPUs are free"


def test_a_machine_that_can_not_start_now(market: Market, customer: Customer) -> None:
    machine = market.add_machine(starts=False)
    offer = next(iter(machine.offers.values()))

    reply = customer.create(offer, cancel_unavail=True)
    assert (reply.status_code, reply.json()["error"]) == (410, "no_such_ask")
    reply = customer.create(offer, cancel_unavail=False)
    row = customer.show(reply.json()["new_contract"])
    assert (reply.status_code, row["cur_state"]) == (200, "stopped")
    assert "Required resources are currently unavailable" in row["status_msg"]


def test_an_instance_may_be_ordered_stopped(market: Market, customer: Customer) -> None:
    i = customer.rented(target_state="stopped")

    row = customer.show(i)
    assert (row["actual_status"], row["cur_state"], row["status_msg"]) == ("exited", "stopped", None)
    assert market.bill_by_kind(i.id)["gpu"] == 0
    assert customer.set(i, state="running").json() == {"success": True}
    market.advance(10)
    assert customer.show(i)["actual_status"] == "running"


def test_an_offer_is_sold_once(market: Market, customer: Customer) -> None:
    market.add_machine()
    offer = next(iter(market.offers))

    assert customer.create(offer, label="a").status_code == 200
    assert customer.create(offer, label="b").status_code in (400, 404, 410)
    assert market.double_rentals() == {}


def test_in_bulk_and_by_search(market: Market, customer: Customer) -> None:
    ids = [o.id for o in market.seed_offers(3)]
    reply = customer.http.post("/api/v0/asks/bulk/", json={"ids": [*ids[:2], 99], "image": IMAGE, "disk": 10}).json()
    assert [r["success"] for r in reply["results"]].count(False) >= 1
    assert not reply["success"]

    market.add_machine("H200")
    body = {"image": IMAGE, "disk": 10, "q": {"gpu_name": {"eq": "H200"}}}
    launched = customer.http.put("/api/v0/launch_instance/", json=body).json()
    assert market.instances[launched["new_contract"]].machine.gpu.name == "H200"
    body["q"] = {"gpu_name": {"eq": "H200"}, "num_gpus": {"gt": 64}}
    assert customer.http.put("/api/v0/launch_instance/", json=body).status_code == 404


def test_start_after_somebody_else_took_the_gpus(market: Market, customer: Customer) -> None:
    i = customer.rented()
    customer.set(i, state="stopped")
    market.advance(10)
    assert motion.let(market, i.machine)

    reply = customer.set(i, state="running")

    assert reply.status_code == 200
    assert reply.json() == {
        "success": False,
        "error": "resources_unavailable",
        "msg": "Required resources are currently unavailable, state change queued.",
    }
    market.advance(60)
    assert customer.show(i)["actual_status"] == "exited"
    motion.leave(market, i.machine)
    market.advance(60)
    assert customer.show(i)["actual_status"] == "running"


def test_a_queued_start_may_also_be_forgotten(market: Market, customer: Customer) -> None:
    market.life.queued_start = "reverts"
    i = customer.rented()
    customer.set(i, state="stopped")
    market.advance(10)
    motion.let(market, i.machine)
    customer.set(i, state="running")
    motion.leave(market, i.machine)

    market.advance(120)

    row = customer.show(i)
    assert (row["actual_status"], row["intended_status"]) == ("exited", "stopped")


def test_what_the_market_writes_down_holds_no_key(market: Market, customer: Customer) -> None:
    customer.rented(label="x")
    customer.http.get("/api/v0/users/current/", params={"api_key": market.accounts[0].key})

    assert [seen.route for seen in market.requests] == ["PUT /api/v0/asks/{id}", "GET /api/v0/users/current"]
    assert market.requests[0].identity == "operator"
    text = repr(market.requests) + repr(market.instances) + repr(market.accounts) + json.dumps(market.requests[0].body)
    assert market.key_seen_in(text) == []
    assert market.key_seen_in(f"oh no: {market.accounts[0].key}") == ["operator"]
