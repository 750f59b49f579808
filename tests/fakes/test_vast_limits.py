"""Who may ask, and how often."""

from __future__ import annotations

import json

import pytest

from tests.fakes.conftest import IMAGE, KEY, Customer
from tests.fakes.vast.accounts import SCOPES
from tests.fakes.vast.limits import THRESHOLDS_S
from tests.fakes.vast.market import Market

READS = {
    "GET /api/v1/instances/": "instance_read",
    "GET /api/v0/users/current/": "user_read",
    "GET /api/v0/benchmarks": "misc",
    "GET /api/v0/charges/": "billing_read",
}


@pytest.mark.parametrize(
    ("state", "status", "error", "words"),
    [
        ("absent", 403, "auth_error", "This action requires login."),
        ("unknown", 404, "auth_error", "Invalid user key"),
        ("deleted", 401, "auth_error", "deleted"),
        ("tfa", 401, "tfa_required", "2FA"),
        ("expired", 404, "auth_error", "Session expired. Please log in again."),
    ],
)
def test_a_key_that_does_not_open(market: Market, state: str, status: int, error: str, words: str) -> None:
    key = {"absent": "", "unknown": "a" * 64}.get(state, "b" * 64)
    if state not in ("absent", "unknown"):
        market.add_key(market.accounts[0], key, state=state)

    reply = Customer(market, key).http.get("/api/v1/instances/")

    assert (reply.status_code, reply.json()["error"]) == (status, error)
    assert words in reply.json()["msg"]


@pytest.mark.parametrize("route", READS)
def test_a_key_opens_what_its_scopes_say(market: Market, route: str) -> None:
    method, path = route.split()
    market.add_key(market.accounts[0], "with" * 16, frozenset({READS[route]}))
    market.add_key(market.accounts[0], "less" * 16, SCOPES - {READS[route]})

    assert Customer(market, "less" * 16).http.request(method, path).status_code == 403
    reply = Customer(market, "with" * 16).http.request(method, path)
    assert reply.status_code in (200, 400)
    assert reply.json().get("error") != "not_authorized"


def test_reading_is_not_writing(market: Market) -> None:
    market.add_machine()
    market.add_key(market.accounts[0], "read" * 16, SCOPES - {"instance_write"})
    reader = Customer(market, "read" * 16)

    assert reader.create(next(iter(market.offers))).status_code == 403
    assert not market.instances


def test_the_older_place_for_a_key(market: Market) -> None:
    nobody = Customer(market, "")

    assert nobody.http.get("/api/v1/instances/", params={"api_key": KEY}).status_code == 200
    assert "api_key" not in market.requests[-1].query


def test_the_key_of_a_container_is_good_for_itself(market: Market, customer: Customer) -> None:
    mine, other = customer.rented(), customer.rented()
    container = Customer(market, mine.env["CONTAINER_API_KEY"])

    assert container.destroy(other).status_code == 403
    assert container.http.get("/api/v1/instances/").status_code == 403
    assert container.create(1).status_code == 403
    assert container.set(mine, state="stopped").status_code == 200
    assert market.requests[-1].identity == f"instance:{mine.id}"
    assert container.destroy(mine).status_code == 200
    again = container.destroy(mine)
    assert (again.status_code, again.json()["error"]) == (404, "no_such_instance")
    assert other.live


def strict(market: Market, **settings: object) -> Customer:
    market.limits.enforce = True
    for name, value in settings.items():
        setattr(market.limits, name, value)
    return Customer(market)


def test_each_route_has_its_interval(market: Market) -> None:
    customer = strict(market)

    def ask() -> int:
        return customer.http.get("/api/v1/instances/").status_code

    assert ask() == 200
    market.advance(0.999)
    assert ask() == 429
    market.advance(0.001)
    assert ask() == 200
    assert customer.http.get("/api/v0/instances/7/").status_code == 200, "another route, another interval"
    assert customer.http.get("/api/v0/instances/8/").status_code == 429, "all ids of a route share one"
    assert [(v.route, v.identity) for v in market.violations] == [
        ("GET /api/v1/instances", "operator"),
        ("GET /api/v0/instances/{id}", "operator"),
    ]


def test_two_customers_do_not_share_an_interval(market: Market) -> None:
    customer = strict(market)
    market.add_account("f" * 64)

    assert customer.http.get("/api/v1/instances/").status_code == 200
    assert Customer(market, "f" * 64).http.get("/api/v1/instances/").status_code == 200


def test_creating_too_soon_is_punished(market: Market) -> None:
    customer = strict(market)
    market.seed_offers(20)

    def create() -> int:
        return customer.create(next(iter(market.offers)), image=IMAGE, disk=10).status_code

    assert create() == 200
    market.advance(4.4)
    assert create() == 429
    market.advance(11.9)
    assert create() == 429
    market.advance(0.2)
    assert create() == 200


def test_the_forms_of_429(market: Market) -> None:
    customer = strict(market)
    customer.http.get("/api/v1/instances/")
    forms = [customer.http.get("/api/v1/instances/") for _ in range(3)]

    text = "API requests too frequent endpoint threshold=1"
    assert forms[0].text == text
    assert forms[0].headers["content-type"] == "text/plain"
    assert forms[1].json() == {"detail": text}
    assert forms[2].json() == {"success": False, "error": "too_many_requests", "msg": text}
    assert all("retry-after" not in reply.headers for reply in forms)


@pytest.mark.parametrize("where", ["header", "body"])
def test_how_long_to_wait(market: Market, where: str) -> None:
    customer = strict(market, retry_after=where, form="error")
    customer.http.get("/api/v1/invoices/")
    reply = customer.http.get("/api/v1/invoices/")

    told = reply.headers.get("retry-after") if where == "header" else reply.json()["retry_after"]
    assert float(told) == 3


def test_violations_are_noted_without_being_enforced(market: Market, customer: Customer) -> None:
    for _ in range(3):
        assert customer.http.get("/api/v1/instances/").status_code == 200

    assert len(market.violations) == 2
    assert market.violations[0].threshold_s == 1.0


def test_the_quota_of_searches_ends_at_midnight(market: Market) -> None:
    customer = strict(market, search_quota=2)
    for _ in range(2):
        customer.search()
        market.advance(6)

    reply = customer.http.post("/api/v0/bundles/", json={})
    assert (reply.status_code, reply.json()["error"]) == (429, "search_quota_exceeded")
    reset_s = int(reply.headers["x-ratelimit-reset"])
    assert reset_s % 86_400 == 0
    assert Customer(market, "").http.post("/api/v0/bundles/", json={}).status_code == 429, "it counts by address"
    market.advance(reset_s - market.now_ms / 1000)
    assert customer.http.post("/api/v0/bundles/", json={}).status_code == 200


def test_every_threshold_belongs_to_a_route(market: Market) -> None:
    for name in THRESHOLDS_S:
        assert market.faults.route(name) == name


def test_the_old_host_sends_one_on(market: Market) -> None:
    reply = Customer(market).http.get("https://vast.ai/api/v1/instances/")

    assert reply.status_code == 308
    assert reply.headers["location"] == "https://console.vast.ai/api/v1/instances/"


def test_a_route_that_is_none(market: Market, customer: Customer) -> None:
    reply = customer.http.get("/api/v9/everything/")

    assert reply.status_code == 404
    assert json.loads(reply.text)["error"] == "not_found"
    assert (market.requests[-1].route, market.requests[-1].status) == ("GET /api/v9/everything/", 404)
