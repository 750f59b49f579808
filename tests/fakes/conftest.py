"""A market, one customer, and what he can say to it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.fakes.vast.app import create_app
from tests.fakes.vast.instances import Instance
from tests.fakes.vast.machines import Machine, Offer
from tests.fakes.vast.market import Market

KEY = "0123456789abcdef" * 4
IMAGE = "registry.example/payload@sha256:" + "ab" * 32


class Customer:
    """Calls as Vast's own client makes them. Pacing is noted by the market and not enforced here."""

    def __init__(self, market: Market, key: str = KEY):
        self.market = market
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        transport = httpx.WSGITransport(app=create_app(market))
        self.http = httpx.Client(transport=transport, base_url="https://console.vast.ai", headers=headers)
        self.store = httpx.Client(transport=transport)

    def search(self, **query: Any) -> list[dict[str, Any]]:
        reply = self.http.post("/api/v0/bundles/", json=query)
        assert reply.status_code == 200, reply.text
        return reply.json()["offers"]

    def create(self, offer: Offer | int, **body: Any) -> httpx.Response:
        number = offer if isinstance(offer, int) else offer.id
        return self.http.put(f"/api/v0/asks/{number}/", json={"client_id": "me", "image": IMAGE, "disk": 20} | body)

    def rented(self, machine: Machine | None = None, boot: bool = True, **body: Any) -> Instance:
        """A new instance, running unless told otherwise."""
        machine = machine or self.market.add_machine(min_bid_share=0.5)
        reply = self.create(next(iter(machine.offers.values())), **body)
        assert reply.status_code == 200, reply.text
        i = self.market.instances[reply.json()["new_contract"]]
        if boot:
            self.market.advance(60)
        return i

    def show(self, i: Instance | int) -> Any:
        number = i if isinstance(i, int) else i.id
        return self.http.get(f"/api/v0/instances/{number}/", params={"owner": "me"}).json()["instances"]

    def page(self, **params: Any) -> dict[str, Any]:
        query = {name: value if isinstance(value, str | int) else json.dumps(value) for name, value in params.items()}
        reply = self.http.get("/api/v1/instances/", params=query)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def set(self, i: Instance, **body: Any) -> httpx.Response:
        return self.http.put(f"/api/v0/instances/{i.id}/", json=body)

    def destroy(self, i: Instance) -> httpx.Response:
        return self.http.request("DELETE", f"/api/v0/instances/{i.id}/", json={})

    def logs(self, i: Instance, **body: Any) -> str:
        reply = self.http.put(f"/api/v0/instances/request_logs/{i.id}/", json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()["result_url"]


@pytest.fixture
def market() -> Market:
    market = Market(seed=5)
    market.limits.enforce = False
    market.add_account(KEY, credit=25.0, name="operator")
    return market


@pytest.fixture
def customer(market: Market) -> Customer:
    return Customer(market)
