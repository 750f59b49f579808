"""Our client on what Vast's own client said and heard: it sends the same, and understands the same.

The record is made by `make test-vast-conformance ARGS=--record`.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict, deque
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from jobs.market.providers import base
from jobs.market.providers.base import KeyRefused, OfferGone, Order
from jobs.market.providers.vast import VastProvider
from jobs.settings import Settings
from tests.conformance.exchanges import PAUSE_S, RECORDED, URL, Call, Exchange, kept
from tests.jobs.market.wire import IMAGE, KEY, T0_MS

CALLS = list(kept(RECORDED / "journey.jsonl"))
# The official client omits this one's last slash; the documents have it.
WITHOUT_SLASH = "/api/v0/users/current"


class Record(httpx.BaseTransport):
    """Answers each request as the market answered the real client's: in that order for each address and page, and the
    last answer again and again."""

    def __init__(self) -> None:
        self.now_ms = T0_MS
        self.sent: list[tuple[str, Any]] = []
        self._waiting: dict[tuple[str, str, str], deque[Exchange]] = defaultdict(deque)
        for call in CALLS:
            for exchange in call.exchanges:
                path = exchange.path + "/" * (exchange.path == WITHOUT_SLASH)
                self._waiting[exchange.method, path, exchange.query.get("after_token", "")].append(exchange)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        self.sent.append((f"{request.method} {request.url.path}", json.loads(body) if body else None))
        waiting = self._waiting[request.method, request.url.path, request.url.params.get("after_token", "")]
        exchange = waiting.popleft() if len(waiting) > 1 else waiting[0]
        text = exchange.answered if isinstance(exchange.answered, str) else json.dumps(exchange.answered)
        return httpx.Response(exchange.status, headers=exchange.headers, content=text)

    def sleep(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


@pytest.fixture
def record() -> Record:
    return Record()


@pytest.fixture
def provider(record: Record) -> VastProvider:
    settings = Settings(vast_api_key=SecretStr(KEY), vast_url=URL, rent_min_compute_capability=5.0, rent_min_cuda=11.0)
    rng = random.Random(1)
    return VastProvider(
        settings, redis=None, now_ms=lambda: record.now_ms, sleep=record.sleep, rng=rng, transport=record
    )


def understood(name: str, number: int = 0) -> Any:
    """What the real client made of its call."""
    return calls(name)[number].understood


def calls(name: str) -> list[Call]:
    return [call for call in CALLS if call.name == f"VastAI.{name}"]


def test_offers(provider: VastProvider) -> None:
    theirs = {str(offer["id"]): offer for offer in understood("search_offers")}
    bids = {str(offer["id"]): offer["min_bid"] for offer in understood("search_offers", 1)}
    ours = provider.scan()
    assert {offer.offer_id for offer in ours} == set(theirs)
    for offer in ours:
        row = theirs[offer.offer_id]
        assert (offer.machine_id, offer.host_id) == (str(row["machine_id"]), str(row["host_id"]))
        assert (offer.gpu_model, offer.num_gpus) == (row["gpu_name"], row["num_gpus"])
        assert offer.dollars_per_hour == row["dph_total"]
        assert offer.gpu_ram_bytes == row["gpu_ram"] << 20
        assert offer.facts["min_bid_dollars_per_hour"] == bids.get(offer.offer_id)


def test_a_rental(provider: VastProvider, record: Record) -> None:
    offer, contract = calls("create_instance")[0].asked[0][0], understood("create_instance")["new_contract"]
    order = Order(str(offer), "a", {"PROVEFLEET_A": "b"}, IMAGE, disk_gb=32)
    assert provider.rent(order) == str(contract)
    with pytest.raises(OfferGone):
        provider.rent(order)
    route, ours = record.sent[0]
    theirs = calls("create_instance")[0].exchanges[0]
    assert route == f"{theirs.method} {theirs.path}"
    assert set(ours) - set(theirs.sent) == {"target_state", "args"}  # what theirs has besides stays at its default
    assert (type(ours["env"]), type(ours["cancel_unavail"])) == (dict, bool)
    for name in ("client_id", "label", "disk", "runtype"):
        assert ours[name] == theirs.sent[name]


def test_the_list(provider: VastProvider) -> None:
    """In two pages, then in one; at last with a key that nobody has."""
    for _ in range(2):
        listing = provider.list()
        assert listing.complete
        theirs = {str(row["id"]): row for row in understood("show_instances")}
        assert {i.provider_id for i in listing.instances} == set(theirs)
        for instance in listing.instances:
            row = theirs[instance.provider_id]
            assert instance.label == (row["label"] or "")
            assert instance.machine_id == str(row["machine_id"])
            assert instance.interruptible is row["is_bid"]
            assert instance.dollars_per_hour == row["dph_total"]
            assert instance.facts["image"] == row["image_uuid"]
    states = {row["label"]: i.status for i in listing.instances for row in [theirs[i.provider_id]]}
    assert states == {"a": base.RUNNING, None: base.RUNNING, "stopped": base.STOPPED, "exited": base.EXITED}
    with pytest.raises(KeyRefused):
        provider.list()


def test_logs(provider: VastProvider, record: Record) -> None:
    ticket = provider.request_logs(str(understood("create_instance")["new_contract"]))
    record.sleep(PAUSE_S)
    logs = provider.fetch_logs(ticket, 100_000)
    assert logs["provider.log"].decode() == understood("logs")
    assert logs["provider-daemon.log"].decode() == understood("logs", 1)


def test_destroying_twice(provider: VastProvider, record: Record) -> None:
    instance = str(understood("create_instance")["new_contract"])
    provider.destroy(instance)
    provider.destroy(instance)
    theirs = calls("destroy_instance")
    assert [route for route, _ in record.sent] == [f"{c.exchanges[0].method} {c.exchanges[0].path}" for c in theirs]
    assert [c.exchanges[0].status for c in theirs] == [200, 404]


def test_money(provider: VastProvider) -> None:
    account = provider.account()
    assert account is not None
    assert account.credit_dollars == understood("show_user")["credit"]
    lines = provider.charges(T0_MS - 4 * 86_400_000, T0_MS)
    theirs = understood("show_invoices_v1")["results"]
    items = [(item["type"], item["amount"]) for row in theirs for item in row["items"]]
    assert sorted((line.kind, line.dollars) for line in lines) == sorted(items)
    assert {line.label for line in lines} == {row["metadata"]["label"] or "" for row in theirs}
