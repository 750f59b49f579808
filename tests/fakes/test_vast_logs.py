"""Logs and commands: asked for, uploaded later, read without a login, lost with the instance."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

import pytest

from tests.fakes.conftest import Customer
from tests.fakes.vast.logs import Upload
from tests.fakes.vast.market import Market


@pytest.mark.parametrize("missing", [403, 404])
def test_nothing_is_there_until_the_host_has_uploaded(market: Market, customer: Customer, missing: int) -> None:
    market.logs.missing = missing
    i = customer.rented()
    url = customer.logs(i)
    assert url.startswith("https://s3.amazonaws.com/")
    assert url.endswith(".log")

    assert customer.store.get(url).status_code == missing
    market.advance(4)
    reply = customer.store.get(url)
    assert reply.status_code == 200
    assert f"container {i.id} starts" in reply.text
    assert parsedate_to_datetime(reply.headers["last-modified"]).timestamp() <= market.now_ms / 1000
    assert reply.headers["etag"]


def test_both_buckets_are_in_use(market: Market, customer: Customer) -> None:
    buckets = {customer.logs(customer.rented()).split("/")[3] for _ in range(12)}

    assert buckets == {"vast.ai", "public.vast.ai"}


def test_the_log_grows_and_the_object_is_the_same_one(market: Market, customer: Customer) -> None:
    i = customer.rented()
    url = customer.logs(i)
    market.advance(4)
    first = customer.store.get(url)
    market.advance(120)

    assert customer.logs(i) == url
    stale = customer.store.get(url)
    assert stale.text == first.text, "what is there is the old one"
    market.advance(4)
    fresh = customer.store.get(url)
    assert fresh.text.startswith(first.text)
    assert len(fresh.text) > len(first.text)
    assert fresh.headers["etag"] != first.headers["etag"]


def test_tail_filter_and_the_daemon(market: Market, customer: Customer) -> None:
    i = customer.rented()
    for n in range(2000):
        i.write(market.now_ms, f"line {n}\n")

    def text(**body: object) -> str:
        url = customer.logs(i, **body)
        market.advance(4)
        return customer.store.get(url).text

    assert text().count("\n") == 1000
    assert text(tail="3", filter="line") == "line 1997\nline 1998\nline 1999\n"
    assert text(filter="line 77", tail="100").count("\n") == 11
    assert "creating container" in text(daemon_logs="true")
    assert "line" not in text(daemon_logs="true")
    market.logs.one_object = True
    assert customer.logs(i) == customer.logs(i, daemon_logs="true")
    reply = customer.http.put(f"/api/v0/instances/request_logs/{i.id}/", json={"tail": "all"})
    assert reply.status_code == 400


def test_after_destroy_the_logs_are_gone(market: Market, customer: Customer) -> None:
    i = customer.rented()
    url = customer.logs(i)
    customer.destroy(i)
    market.advance(60)

    assert customer.store.get(url).status_code == 403
    reply = customer.http.put(f"/api/v0/instances/request_logs/{i.id}/", json={})
    assert (reply.status_code, reply.json()["error"]) == (404, "invalid_id")


@pytest.mark.parametrize("status", ["offline", "unknown"])
def test_a_host_that_is_away_uploads_nothing(market: Market, customer: Customer, status: str) -> None:
    i = customer.rented()
    market.life.set(i, actual=status)
    url = customer.logs(i)
    market.advance(600)

    assert customer.store.get(url).status_code == 403


def test_the_store_refuses_a_bearer_and_the_market_notes_it(market: Market, customer: Customer) -> None:
    url = customer.logs(customer.rented())
    market.violations.clear()

    reply = customer.http.get(url)

    assert reply.status_code == 400
    assert [v.what for v in market.violations] == ["key sent to the log host"]


def test_the_store_may_be_busy(market: Market, customer: Customer) -> None:
    url = customer.logs(customer.rented())
    market.advance(5)
    market.logs.outages = 2

    assert [customer.store.get(url).status_code for _ in range(3)] == [503, 503, 200]


def test_parts_of_an_object(market: Market, customer: Customer) -> None:
    i = customer.rented()
    market.logs.planned.append(Upload(0.0, change=lambda text: b"x" * (1 << 20), repeat=300))
    url = customer.logs(i)
    market.advance(1)

    head = customer.store.head(url)
    assert head.headers["content-length"] == str(300 << 20)
    part = customer.store.get(url, headers={"Range": "bytes=-100"})
    assert (part.status_code, len(part.content)) == (206, 100)
    part = customer.store.get(url, headers={"Range": "bytes=1048570-1048580"})
    assert (part.status_code, len(part.content)) == (206, 11)
    with customer.store.stream("GET", url) as reply:
        first = next(reply.iter_bytes())
    assert len(first) <= 1 << 20


def test_commands(market: Market, customer: Customer) -> None:
    i = customer.rented()

    def send(command: object) -> tuple[int, dict[str, object]]:
        reply = customer.http.put(f"/api/v0/instances/command/{i.id}/", json={"command": command})
        return reply.status_code, reply.json()

    status, body = send("du -d1 /")
    assert status == 200
    assert str(body["result_url"]).endswith("C.log")
    market.advance(4)
    assert customer.store.get(str(body["result_url"])).text.strip().endswith("/")
    assert send("nvidia-smi")[0] == 400
    assert send("ls " + "x" * 520)[0] == 400
    assert customer.http.put("/api/v0/instances/command/5/", json={"command": "ls"}).json()["error"] == (
        "invalid_container_id"
    )
    assert customer.http.put(f"/api/v0/instances/command/{i.id}/", json=["ls"]).status_code == 483
