"""Renting: the order as it is sent, and each way it ends."""

from __future__ import annotations

import dataclasses
from typing import Any

import httpx
import pytest

from jobs.market.providers.base import (
    NoCredit,
    OfferGone,
    Order,
    ProviderError,
    ProviderUnavailable,
    RentalRefused,
    RentedStopped,
)
from tests.fakes.vast.market import Market
from tests.jobs.market.wire import IMAGE, KEY, Wire, as_json, no, ok, on_market

LABEL = "provefleet:0123456789abcdef0123456789abcdef:00112233445566778899aabbccddeeff"
ENV = {"PROVEFLEET_AGENT_URL": "https://agent.example", "PROVEFLEET_BOOTSTRAP_TOKEN": "t" * 43}
ORDER = Order("7001", LABEL, ENV, image=IMAGE, disk_gb=40)


def test_an_order_as_it_is_sent() -> None:
    wire = Wire(ok(new_contract=11, instance_api_key="secret"))
    assert wire.provider().rent(ORDER) == "11"
    assert wire.requests[0].method == "PUT"
    assert wire.requests[0].url.path == "/api/v0/asks/7001/"
    assert wire.body() == {
        "client_id": "me",
        "image": IMAGE,
        "label": LABEL,
        "disk": 40.0,
        "runtype": "args",
        "args": [],
        "env": {
            **ENV,
            "PROVEFLEET_IMAGE_DIGEST": IMAGE,
            "PROVEFLEET_SELF_DESTROY_URL": "https://console.vast.ai/api/v0/instances/",
        },
        "cancel_unavail": True,
        "target_state": "running",
    }


def test_a_price_is_sent_exactly_when_the_machine_shall_be_interruptible() -> None:
    wire = Wire(ok(new_contract=11))
    wire.provider().rent(dataclasses.replace(ORDER, bid_dollars_per_hour=0.125))
    wire.provider().rent(dataclasses.replace(ORDER, bid_dollars_per_hour=None))
    assert wire.body(0)["price"] == 0.125
    assert "price" not in wire.body(1)


BAD_ORDERS: list[tuple[dict[str, Any], str]] = [
    ({"image": ""}, "PROVEFLEET_PAYLOAD_IMAGE must name an image by its digest.* it is not set"),
    ({"image": "registry.example/payload:latest"}, "by its digest"),
    ({"image": "registry.example/payload@sha256:abc"}, "by its digest"),
    ({"image": f"-it {IMAGE}"}, "by its digest"),
    ({"label": ""}, "a label has 1 to 256"),
    ({"label": "x" * 257}, "a label has 1 to 256"),
    ({"label": "two\nlines"}, "a label has 1 to 256"),
    ({"disk_gb": 7}, "at least 8 GB"),
    ({"bid_dollars_per_hour": 0.0}, "a bid must be from"),
    ({"bid_dollars_per_hour": 128.5}, "a bid must be from"),
    ({"bid_dollars_per_hour": float("nan")}, "a bid must be from"),
    ({"env": {"PATH": "/x"}}, "only PROVEFLEET_"),
    ({"env": {"-p 22:22": "1"}}, "only PROVEFLEET_"),
    ({"env": {"PROVEFLEET_A": "x" * 257}}, "takes 256 at most"),
    ({"env": {"PROVEFLEET_A": "a\0b"}}, "without NUL"),
    ({"env": {f"PROVEFLEET_{n}": "x" * 256 for n in range(130)}}, "over 32768 characters"),
    ({"offer_id": "../../users"}, "is no offer of Vast.ai"),
]


@pytest.mark.parametrize(("change", "why"), BAD_ORDERS)
def test_what_should_not_be_ordered_is_refused_with_the_reason(change: dict[str, Any], why: str) -> None:
    wire = Wire(ok(new_contract=11))
    with pytest.raises(RentalRefused, match=why):
        wire.provider().rent(dataclasses.replace(ORDER, **change))
    assert wire.requests == []


NO_ASK = "error 404/3603: no_such_ask Instance type by id 7001 is not available."
GONE_NOW = "error 410/3907: no_such_ask Instance type 7001 is no longer available."
ANSWERS: list[tuple[httpx.Response, type[ProviderError], str]] = [
    # The offer is gone: three statuses, two names.
    (no(400, "invalid_args", NO_ASK, ask_id=7001), OfferGone, "no_such_ask"),
    (no(404, "no_such_ask", NO_ASK), OfferGone, "no_such_ask"),
    (no(410, "no_such_ask", GONE_NOW), OfferGone, "no longer available"),
    (no(200, "no_such_ask", GONE_NOW), OfferGone, "no longer available"),
    (no(410, "resources_unavailable", "cannot start now"), OfferGone, "resources_unavailable"),
    # Money.
    (no(400, "insufficient_credit", "Your account lacks credit; see the billing page."), NoCredit, "pay in"),
    (no(400, "spend_rate_limit", "New accounts may spend ..."), NoCredit, "spend_rate_limit"),
    (no(200, "insufficient_credit"), NoCredit, "insufficient_credit"),
    # Our order.
    (no(400, "invalid_price", "bid is too low"), RentalRefused, "invalid_price"),
    (no(400, "invalid_args", "disk"), RentalRefused, "does not accept this order"),
    (no(400, "no_ssh_key_for_vm"), RentalRefused, "no_ssh_key_for_vm"),
    (no(403, "invalid_args", "Offer 7001 is not your own"), RentalRefused, "not your own"),
    # A machine that bills although the answer is an error.
    (no(400, "invalid_price", "bid below market", new_contract=11), RentedStopped, "made machine 11"),
    (no(200, "resources_unavailable", "state change queued", new_contract="11"), RentedStopped, "made machine 11"),
    (no(500, "internal", "oops", new_contract=11), RentedStopped, "made machine 11"),
    # It is open what happened.
    (ok(), ProviderUnavailable, "its label will tell"),
    (ok(new_contract=None), ProviderUnavailable, "its label will tell"),
    (ok(new_contract=True), ProviderUnavailable, "its label will tell"),
    (ok(new_contract="soon"), ProviderUnavailable, "its label will tell"),
    (no(200, "internal", "please try again"), ProviderUnavailable, "please try again"),
    (no(200, "resources_unavailable", "state change queued."), ProviderUnavailable, "state change queued"),
    (no(410, "deprecated_endpoint", "use another"), ProviderUnavailable, "deprecated_endpoint"),
    (no(409, "conflict"), ProviderUnavailable, "conflict"),
    (ok(msg=GONE_NOW), ProviderUnavailable, "its label will tell"),
    (as_json(200, {"new_contract": "11x", "success": True}), ProviderUnavailable, "its label will tell"),
]


@pytest.mark.parametrize(("answer", "error", "words"), ANSWERS)
def test_each_answer_means_one_thing(answer: httpx.Response, error: type[ProviderError], words: str) -> None:
    wire = Wire(answer)
    with pytest.raises(error, match=words) as raised:
        wire.provider().rent(ORDER)
    assert type(raised.value) is error, "NoCredit is a refusal too, a refusal no doubt"
    assert len(wire.requests) == 1
    if isinstance(raised.value, RentedStopped):
        assert raised.value.provider_id == "11"


# On a market.


def renter(market: Market) -> Order:
    market.add_account(KEY, credit=25.0)
    machine = market.add_machine()
    return dataclasses.replace(ORDER, offer_id=str(next(iter(machine.offers.values())).id))


@pytest.fixture
def market() -> Market:
    return Market(seed=5)


def test_a_machine_is_rented_as_ordered(market: Market) -> None:
    order = renter(market)
    provider = on_market(market)
    number = int(provider.rent(order))
    instance = market.instances[number]
    assert (instance.label, instance.disk_gb, instance.is_bid, instance.image) == (LABEL, 40, False, IMAGE)
    assert instance.env["PROVEFLEET_AGENT_URL"] == ENV["PROVEFLEET_AGENT_URL"]
    assert instance.env["CONTAINER_ID"] == str(number)
    assert market.key_seen_in(repr(instance.env)) == []


def test_a_bid_makes_it_interruptible(market: Market) -> None:
    order = renter(market)
    provider = on_market(market)
    provider.rent(dataclasses.replace(order, bid_dollars_per_hour=0.3))
    assert [i.interruptible for i in provider.list().instances] == [True]


def test_a_bid_below_the_market_names_what_it_left_behind(market: Market) -> None:
    order = renter(market)
    provider = on_market(market)
    with pytest.raises(RentedStopped) as stopped:
        provider.rent(dataclasses.replace(order, bid_dollars_per_hour=0.002))
    assert [i.provider_id for i in provider.list().instances] == [stopped.value.provider_id]


@pytest.mark.parametrize("kind", ["reset_after", "504_after", "timeout_after", "success_false_after", "truncated"])
def test_a_create_whose_answer_is_lost_is_in_doubt_and_is_one_machine(market: Market, kind: str) -> None:
    order = renter(market)
    market.fault("PUT /api/v0/asks", kind, times=5)
    provider = on_market(market)
    with pytest.raises(ProviderUnavailable):
        provider.rent(order)
    assert [i.label for i in provider.list().instances] == [LABEL]


def test_three_forms_of_gone(market: Market) -> None:
    order = renter(market)
    provider = on_market(market)
    for _ in range(3):
        with pytest.raises(OfferGone):
            provider.rent(dataclasses.replace(order, offer_id="1234"))
    assert market.violations == []


def test_an_account_without_money(market: Market) -> None:
    order = renter(market)
    market.accounts[0].purse.pay(-25.0)
    with pytest.raises(NoCredit):
        on_market(market).rent(order)
