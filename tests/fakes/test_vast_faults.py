"""Troubles on order: what the caller sees, and whether it happened all the same."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fakes.conftest import Customer
from tests.fakes.vast.instances import Instance
from tests.fakes.vast.market import Market

DESTROY = "DELETE /api/v0/instances"


@pytest.fixture
def i(customer: Customer) -> Instance:
    return customer.rented()


@pytest.mark.parametrize(
    ("kind", "error", "happened"),
    [
        ("reset_before", httpx.ReadError, False),
        ("reset_after", httpx.ReadError, True),
        ("timeout_before", httpx.ReadTimeout, False),
        ("timeout_after", httpx.ReadTimeout, True),
        ("refused", httpx.ConnectError, False),
    ],
)
def test_no_answer(
    market: Market, customer: Customer, i: Instance, kind: str, error: type[Exception], happened: bool
) -> None:
    market.fault("DELETE /api/v0/instances/{id}", kind)

    with pytest.raises(error):
        customer.destroy(i)

    assert i.live is not happened
    assert market.requests[-1].status == 0
    assert customer.destroy(i).status_code == (404 if happened else 200)


@pytest.mark.parametrize(
    ("kind", "status", "words", "happened"),
    [
        ("500_before", 500, "internal_error", False),
        ("502_before", 502, "502 Bad Gateway", False),
        ("504_after", 504, "504 Gateway Time-out", True),
        ("503_after", 503, "<html>", True),
        ("429_text", 429, "too frequent", False),
        ("429_detail", 429, '{"detail":', False),
        ("429_error", 429, "too_many_requests", False),
        ("success_false", 200, '"success": false', False),
        ("success_false_after", 200, '"success": false', True),
        ("html", 200, "Maintenance", False),
        ("lie", 200, '"success": true', False),
        ("not_json", 200, "OK", True),
        ("a_list", 200, "[", True),
    ],
)
def test_an_odd_answer(
    market: Market, customer: Customer, i: Instance, kind: str, status: int, words: str, happened: bool
) -> None:
    market.fault("DELETE /api/v0/instances/{id}", kind)

    reply = customer.destroy(i)

    assert reply.status_code == status
    assert words in reply.text
    assert i.live is not happened


def test_answers_with_parts_missing_or_changed(market: Market, customer: Customer) -> None:
    market.seed_offers(9)
    create = "PUT /api/v0/asks"
    ids = list(market.offers)

    market.fault(create, "drop", fields=("new_contract",))
    assert set(customer.create(ids[0], disk=10).json()) == {"success", "instance_api_key"}
    market.fault(create, "truncated")
    assert len(customer.create(ids[-1], disk=10).content) == 40
    market.fault("GET /api/v1/instances", "change", change=lambda body: {"instances": body["instances"][:1]})
    assert len(customer.page()["instances"]) == 1
    market.fault("GET /api/v1/instances", "huge", size=10_000)
    assert len(customer.http.get("/api/v1/instances/").content) > 10_000
    market.fault("GET /api/v1/instances", "empty")
    assert customer.http.get("/api/v1/instances/").content == b""
    market.fault("GET /api/v1/instances", "reply", status=418, body={"a": 1}, headers={"X-Tea": "yes"})
    reply = customer.http.get("/api/v1/instances/")
    assert (reply.status_code, reply.json(), reply.headers["x-tea"]) == (418, {"a": 1}, "yes")


def test_another_host(market: Market, customer: Customer) -> None:
    market.fault("GET /api/v1/instances", "redirect", to="https://thief.example/api/")

    reply = customer.http.get("/api/v1/instances/")

    assert (reply.status_code, reply.headers["location"]) == (308, "https://thief.example/api/")
    assert market.violations == []
    customer.store.get(reply.headers["location"])
    assert market.violations == []
    customer.http.get(reply.headers["location"])
    assert [v.what for v in market.violations] == ["key sent to thief.example"]


def test_times_turns_and_calls_that_are_spared(market: Market, customer: Customer) -> None:
    route = "GET /api/v1/instances"
    market.fault(route, "500_before", times=2, skip=1)
    market.fault(route, "502_before")

    statuses = [customer.http.get("/api/v1/instances/").status_code for _ in range(5)]

    assert statuses == [200, 500, 500, 502, 200]
    assert market.faults.armed == []


def test_only_some_calls(market: Market, customer: Customer) -> None:
    market.fault("GET /api/v1/instances", "500_before", only=lambda query: "after_token" in query)

    assert customer.http.get("/api/v1/instances/").status_code == 200
    assert customer.http.get("/api/v1/instances/", params={"after_token": "x"}).status_code == 500


@pytest.mark.parametrize(
    ("wait", "options"), [("Retry-After", {"retry_after": 7}), ("body", {"retry_after": 7, "where": "body"})]
)
def test_429_that_says_how_long(market: Market, customer: Customer, wait: str, options: dict[str, Any]) -> None:
    market.fault("GET /api/v1/instances", "429_error", **options)
    reply = customer.http.get("/api/v1/instances/")

    assert (reply.json().get("retry_after") if wait == "body" else int(reply.headers[wait])) == 7


def test_what_can_not_be_armed(market: Market) -> None:
    with pytest.raises(ValueError, match="no fault is called 'bang'"):
        market.fault("PUT /api/v0/asks", "bang")
    with pytest.raises(ValueError, match="no route is called"):
        market.fault("PUT /api/v0/bananas", "html")
