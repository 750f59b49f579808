"""Listing in pages, the retired list, and what goes with them."""

from __future__ import annotations

import json

import pytest

from tests.fakes.conftest import Customer
from tests.fakes.vast.market import Market


@pytest.mark.parametrize(
    ("asked", "rows"), [(None, 25), (7, 7), (25, 25), (26, 25), (3000, 25), (0, 5), (-3, 5)], ids=str
)
def test_how_many_rows_a_page_has(market: Market, customer: Customer, asked: int | None, rows: int) -> None:
    for n in range(51):
        market.add_instance(market.accounts[0], f"l{n}")

    page = customer.page() if asked is None else customer.page(limit=asked)

    assert len(page["instances"]) == page["instances_found"] == rows
    assert page["total_instances"] == 51
    assert page["next_token"]


@pytest.mark.parametrize("count", [0, 1, 25, 26, 51])
def test_pages_hold_all_of_them_once(market: Market, customer: Customer, count: int) -> None:
    made = [market.add_instance(market.accounts[0], None if n % 3 else "a").id for n in range(count)]
    seen: list[int] = []
    token = ""
    while True:
        page = customer.page(after_token=token) if token else customer.page()
        seen += [row["id"] for row in page["instances"]]
        token = page["next_token"]
        if token is None:
            break

    assert seen == made
    labels = {"a": (count + 2) // 3, "": count - (count + 2) // 3}
    assert page["label_counts"] == {name: n for name, n in labels.items() if n}


def test_a_page_is_not_upset_by_what_was_destroyed_meanwhile(market: Market, customer: Customer) -> None:
    made = [market.add_instance(market.accounts[0], "a") for _ in range(30)]
    first = customer.page()
    for i in made[20:25]:
        market.life.destroy(i)

    rest = customer.page(after_token=first["next_token"])
    assert [row["id"] for row in rest["instances"]] == [i.id for i in made[25:]]


def test_filters_order_and_columns(market: Market, customer: Customer) -> None:
    a, b, c = (market.add_instance(market.accounts[0], label) for label in ("a", "b", None))

    def ids(**query: object) -> list[int]:
        return [row["id"] for row in customer.page(**query)["instances"]]

    assert ids(select_filters={"label": {"eq": "b"}}) == [b.id]
    assert ids(select_filters={"label": {"in": [None]}}) == [c.id]
    assert ids(select_filters={"id": {"gt": a.id}, "actual_status": {"eq": "running"}}) == [b.id, c.id]
    assert ids(order_by=[{"col": "id", "dir": "desc"}]) == [c.id, b.id, a.id]
    assert ids(order_by=[{"col": "label", "dir": "asc"}]) == [c.id, a.id, b.id]
    rows = customer.page(select_cols=["id", "flavour"])["instances"]
    assert rows[0] == {"id": a.id, "flavour": None}


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ({"select_filters": '{"dph_total": {"lt": 1}}'}, "invalid_request", "dph_total is not a valid search key"),
        ({"select_filters": '{"num_gpus": {"eq": 1}}'}, "invalid_request", "num_gpus is not a valid search key"),
        ({"order_by": '[{"col": "dph_total", "dir": "asc"}]'}, "invalid_request", "not a valid search key"),
        ({"select_filters": "["}, "invalid_request", "select_filters"),
        ({"select_filters": '{"id": {"like": 1}}'}, "bad_request", "id.like"),
        ({"after_token": "nonsense"}, "invalid_token", "after_token"),
        ({"after_token": "eyJ2YWx1ZXMiOiAieCJ9"}, "invalid_token", "after_token"),
        ({"limit": "many"}, "invalid_request", "limit"),
    ],
)
def test_a_listing_that_is_refused(customer: Customer, query: dict[str, str], error: str, words: str) -> None:
    reply = customer.http.get("/api/v1/instances/", params=query)

    assert (reply.status_code, reply.json()["error"]) == (400, error)
    assert words in reply.json()["msg"]


def test_the_retired_list(market: Market, customer: Customer) -> None:
    market.add_instance(market.accounts[0], "a")
    reply = customer.http.get("/api/v0/instances/", params={"owner": "me"})
    assert reply.status_code == 410
    assert reply.json() == {
        "success": False,
        "error": "deprecated_endpoint",
        "msg": "/api/v0/instances/ is deprecated. Use /api/v1/instances/ instead.",
    }

    market.accounts[0].v0_list = "200"
    assert len(customer.http.get("/api/v0/instances/").json()["instances"]) == 1


def test_nobody_sees_another_account(market: Market, customer: Customer) -> None:
    other = market.add_account("f" * 64, name="other")
    theirs = market.add_instance(other, "theirs")

    assert customer.page()["total_instances"] == 0
    assert customer.show(theirs) is None
    assert customer.destroy(theirs).status_code == 404
    assert theirs.live
    logs = customer.http.put(f"/api/v0/instances/request_logs/{theirs.id}/", json={})
    assert (logs.status_code, logs.json()["error"]) == (403, "not_authorized")
    assert market.foreign_touched() == []


def test_strangers_under_the_same_account_are_watched(market: Market, customer: Customer) -> None:
    a, b = (market.add_instance(market.accounts[0], "training") for _ in range(2))

    customer.show(a)
    customer.logs(a)
    assert market.foreign_touched() == []
    customer.set(a, label="mine")
    customer.destroy(b)
    assert market.foreign_touched() == [a, b]


def test_volumes_are_seen_in_the_list_only(market: Market, customer: Customer) -> None:
    i = customer.rented(volume_info={"mount_path": "/data", "create_new": True, "volume_id": 3})

    assert customer.page()["instances"][0]["volume_info"]["mount_path"] == "/data"
    assert customer.show(i)["volume_info"] is None


def test_distinct_values(market: Market, customer: Customer) -> None:
    customer.rented(market.add_machine("H200"))

    row = customer.http.get("/api/v0/instances/filters/").json()["filters"]
    assert row == [{"actual_status": "running", "verification": "verified", "gpu_name": "H200"}]


def test_keys_of_ssh(market: Market, customer: Customer) -> None:
    assert customer.http.get("/api/v0/ssh/").status_code == 404
    key = customer.http.post("/api/v0/ssh/", json={"ssh_key": "ssh-ed25519 AAAA me"}).json()["key"]
    assert set(key) == {"id", "user_id", "public_key", "created_at", "deleted_at"}
    assert customer.http.get("/api/v0/ssh/").json() == [key]
    i = customer.rented()
    assert i.env["SSH_PUBLIC_KEY"] == "ssh-ed25519 AAAA me"

    assert customer.http.post(f"/api/v0/instances/{i.id}/ssh/", json={"ssh_key": "ssh-rsa B"}).json()["success"]
    shown = customer.http.get(f"/api/v0/instances/{i.id}/ssh/").json()["ssh_keys"]
    assert isinstance(shown, str)
    assert json.loads(shown) == [{"id": 1, "public_key": "ssh-rsa B"}]
    assert customer.http.delete(f"/api/v0/instances/{i.id}/ssh/1/").status_code == 200
    assert customer.http.delete(f"/api/v0/instances/{i.id}/ssh/1/").status_code == 404
    assert customer.http.delete(f"/api/v0/ssh/{key['id']}/").json()["success"]


def test_webhooks(customer: Customer) -> None:
    made = [
        customer.http.post("/api/v0/webhooks/", json={"url": f"https://h.example/{n}"}).status_code for n in range(5)
    ]
    assert made == [200, 200, 200, 200, 400]
    assert customer.http.post("/api/v0/webhooks/", json={"url": "http://h.example"}).status_code == 400
    assert customer.http.post("/api/v0/webhooks/2/test/").json()["success"]
    assert customer.http.delete("/api/v0/webhooks/2/").json()["success"]
    assert customer.http.delete("/api/v0/webhooks/2/").status_code == 404
