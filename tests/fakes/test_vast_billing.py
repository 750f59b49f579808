"""The meter by state, the credit, and the bill that is shown: late, by day, rounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.conftest import Customer
from tests.fakes.vast.instances import Instance
from tests.fakes.vast.market import Market

HOUR_S = 3600.0
GPU, DISK = 0.72, 0.1 * 36 / 720
"""Dollars an hour of the machine below with 36 GB."""


@pytest.fixture
def i(market: Market, customer: Customer) -> Instance:
    """A running instance, its bill so far set aside."""
    machine = market.add_machine(
        dollars_per_gpu_hour=GPU, storage_dollars_per_gb_month=0.1, dollars_per_gb_down=0.02, dollars_per_gb_up=0.05
    )
    return customer.rented(machine, disk=36, label="app:1")


def hour(market: Market, i: Instance) -> tuple[float, float]:
    """What an hour of the present state costs: (gpu, disk)."""
    before = market.bill_by_kind(i.id)
    market.advance(HOUR_S)
    after = market.bill_by_kind(i.id)
    return round(after["gpu"] - before["gpu"], 9), round(after["disk"] - before["disk"], 9)


@pytest.mark.parametrize(
    ("states", "gpu", "disk"),
    [
        ({"actual": None, "cur": "unloaded"}, 0, DISK),
        ({"actual": "created"}, 0, DISK),
        ({"actual": "loading"}, 0, DISK),
        ({"actual": "running"}, GPU, DISK),
        ({"actual": "frozen"}, GPU, DISK),
        ({"actual": "rebooting"}, GPU, DISK),
        ({"actual": "unknown"}, GPU, DISK),
        ({"actual": "never heard of"}, GPU, DISK),
        ({"actual": "exited", "cur": "running"}, GPU, DISK),
        ({"actual": "exited", "cur": "stopped"}, 0, DISK),
        ({"actual": "stopped", "cur": "stopped"}, 0, DISK),
        ({"actual": "running", "cur": "stopped"}, 0, DISK),
        ({"actual": "offline"}, 0, 0),
    ],
)
def test_what_each_state_costs(market: Market, i: Instance, states: dict[str, Any], gpu: float, disk: float) -> None:
    market.life.set(i, **states)

    assert hour(market, i) == (pytest.approx(gpu), pytest.approx(disk))


def test_loading_may_cost_too(market: Market, i: Instance) -> None:
    market.life.bill_loading = True
    market.life.set(i, actual="loading")

    assert hour(market, i) == (pytest.approx(GPU), pytest.approx(DISK))


def test_an_interruptible_one_costs_its_bid(market: Market, customer: Customer) -> None:
    i = customer.rented(market.add_machine(dollars_per_gpu_hour=0.4, min_bid_share=0.5), price=0.25)

    assert hour(market, i)[0] == pytest.approx(0.25)


def test_the_bill_is_exact_to_the_second(market: Market, customer: Customer, i: Instance) -> None:
    booted = market.bill(i.id)
    market.advance(1)
    assert market.bill(i.id) - booted == pytest.approx((GPU + DISK) / HOUR_S)

    market.advance(99)
    customer.destroy(i)
    total = market.bill("app:1")
    assert total - booted == pytest.approx((GPU + DISK) * 100 / HOUR_S)
    market.advance(HOUR_S)
    assert market.bill(i.id) == total
    assert market.bill() == total


def test_traffic_costs_in_both_directions_and_at_once(market: Market, i: Instance) -> None:
    credit = market.accounts[0].purse.credit
    market.transfer(i, down_bytes=10**9, up_bytes=2 * 10**9)

    bill = market.bill_by_kind(i.id)
    assert (bill["bwd"], bill["bwu"]) == (pytest.approx(0.02), pytest.approx(0.10))
    assert market.accounts[0].purse.credit == pytest.approx(credit - 0.12)


def test_what_is_billed_is_what_the_credit_lost(market: Market, customer: Customer, i: Instance) -> None:
    others = [customer.rented(price=None) for _ in range(3)]
    market.life.outbid(others[0], 600)
    market.life.set(others[1], actual="offline")
    market.advance(5 * HOUR_S)
    market.transfer(i, 3 * 10**9)
    customer.destroy(others[2])
    market.advance(HOUR_S)

    assert 25.0 - market.accounts[0].purse.credit == pytest.approx(market.bill(), abs=1e-9)


def test_the_credit_runs_out_to_the_second(market: Market, i: Instance) -> None:
    purse = market.accounts[0].purse
    purse.pay((GPU + DISK) / 2 - purse.credit)

    market.advance(HOUR_S / 2 - 1)
    assert i.cur == "running"
    market.advance(2)
    assert i.cur == "stopped"
    assert purse.credit == pytest.approx(-DISK / HOUR_S, abs=1e-6)


def test_a_jump_of_the_clock_changes_nothing(customer: Customer, market: Market, i: Instance) -> None:
    """However seldom anybody looks, things happen when they are due."""
    market.life.outbid(i, resume_after_s=1800)
    before = market.bill_by_kind(i.id)["gpu"]
    market.advance(10 * HOUR_S)

    away_s = 1800 + 2
    assert market.bill_by_kind(i.id)["gpu"] - before == pytest.approx(GPU * (10 - away_s / HOUR_S))


def test_the_credit_that_is_shown_is_seconds_old(market: Market, customer: Customer, i: Instance) -> None:
    def shown() -> float:
        return customer.http.get("/api/v0/users/current/").json()["credit"]

    first = shown()
    market.advance(1)
    assert shown() == first
    market.advance(5)
    assert shown() == pytest.approx(market.accounts[0].purse.credit)
    body = customer.http.get("/api/v0/users/current").json()
    assert body["api_key"] == market.accounts[0].key, "in clear, as Vast does it"


def charges(customer: Customer, **more: Any) -> dict[str, Any]:
    day = {"gte": customer.market.now_ms / 1000 - 7 * 86_400, "lte": customer.market.now_ms / 1000}
    query = {"select_filters": json.dumps({"day": day, "type": {"in": ["instance"]}}), **more}
    reply = customer.http.get("/api/v0/charges/", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_charges_lag_and_add_up_in_the_end(market: Market, customer: Customer, i: Instance) -> None:
    market.transfer(i, 10**9, 10**9)
    market.advance(1800)
    assert charges(customer)["results"] == []
    market.advance(1800)
    early = sum(row["amount"] for row in charges(customer)["results"])
    assert 0 < early < market.bill(i.id) / 2

    market.advance(40 * HOUR_S)
    customer.destroy(i)
    market.advance(2 * HOUR_S)
    rows = charges(customer)["results"]
    assert len(rows) >= 2, "one a day"
    row = rows[0]
    assert (row["type"], row["source"]) == ("instance", f"instance-{i.id}")
    assert row["metadata"]["label"] == "app:1"
    assert {item["type"] for item in row["items"]} == {"gpu", "disk", "bwd", "bwu"}
    assert all(row["start"] < row["end"] for row in rows)
    assert sum(row["amount"] for row in rows) == pytest.approx(market.bill(i.id), abs=0.005)
    items = sum(item["amount"] for row in rows for item in row["items"])
    assert items == pytest.approx(market.bill(i.id), abs=1e-5)


def test_charges_in_pages_and_as_a_tree(market: Market, customer: Customer, i: Instance) -> None:
    market.advance(3 * 86_400)
    flat = charges(customer)["results"]
    page = charges(customer, limit=2)
    rest = charges(customer, limit=500, after_token=page["next_token"])

    assert page["count"] == 2
    assert page["total"] == len(flat)
    assert page["results"] + rest["results"] == flat
    tree = charges(customer, format="tree")["results"]
    assert [top["source"] for top in tree] == [f"instance-{i.id}"]
    assert len(tree[0]["items"]) == len(flat)


def test_charges_need_a_day(customer: Customer) -> None:
    reply = customer.http.get("/api/v0/charges/")

    assert reply.status_code == 400
    assert set(reply.json()) == {"msg"}


def test_invoices_without_a_date_are_refused_with_200(market: Market, customer: Customer) -> None:
    reply = customer.http.get("/api/v1/invoices/")
    assert (reply.status_code, reply.json()) == (200, {"success": False, "error": "Invalid date range"})

    when = json.dumps({"when": {"gte": 0, "lte": market.now_ms / 1000}})
    body = customer.http.get("/api/v1/invoices/", params={"select_filters": when}).json()
    assert [row["amount"] for row in body["results"]] == [25.0]
    assert customer.http.get("/api/v0/instances/balance/1/").status_code == 404
