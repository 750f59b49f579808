"""The provider as the jobs have it: how it is made, what destroying means, and a whole life on a market."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from jobs.context import Context
from jobs.market import provider, provider_names
from jobs.market.providers.base import (
    EXITED,
    LOADING,
    RUNNING,
    STOPPED,
    KeyRefused,
    LogsNotReady,
    Order,
    ProviderUnavailable,
    UnknownProvider,
)
from jobs.market.providers.vast import VastProvider
from jobs.settings import Settings
from tests.fakes.vast.app import create_app
from tests.fakes.vast.market import Market
from tests.jobs.market.wire import IMAGE, KEY, Wire, no, ok, on_market, page
from tests.jobs.scene import NO_REDIS

# How it is made.


def context_of(state_dir: Path, market: Market, key: str = KEY) -> Context:
    settings = Settings(
        state_dir=state_dir, redis_url=SecretStr(NO_REDIS), vast_api_key=SecretStr(key), payload_image=IMAGE
    )
    context = Context(settings, now_ms=lambda: market.now_ms, sleep=market.advance)
    context.vast_transport = httpx.WSGITransport(create_app(market))  # type: ignore[arg-type]
    return context


def test_without_a_key_only_this_machine_is_a_provider(tmp_path: Path) -> None:
    assert provider_names(Settings(state_dir=tmp_path)) == ("local",)
    assert provider_names(Settings(state_dir=tmp_path, vast_api_key=SecretStr(KEY))) == ("local", "vast")


def test_a_context_makes_it_with_its_own_clock_sleep_and_transport(state_dir: Path) -> None:
    market = Market(seed=1)
    market.add_account(KEY, credit=7.0)
    context = context_of(state_dir, market)
    for _ in range(3):  # each job makes its own; they keep the distance together, also without Redis
        account = provider(context, "vast").account()
        assert provider(context, "vast").list().complete
    assert account is not None
    assert account.credit_dollars == 7.0
    assert market.violations == []
    assert len(context.paced) == 2
    assert KEY not in repr(context.paced)


def test_without_a_key_it_is_made_to_say_so(state_dir: Path) -> None:
    vast = provider(context_of(state_dir, Market(), key=""), "vast")
    assert (vast.name, vast.remote, vast.bills) == ("vast", True, True)
    with pytest.raises(KeyRefused, match="set PROVEFLEET_VAST_API_KEY"):
        vast.list()


def test_what_nobody_is_called_is_no_provider(state_dir: Path) -> None:
    with pytest.raises(UnknownProvider, match="no provider is called 'aws'"):
        provider(context_of(state_dir, Market()), "aws")


def test_the_key_shows_in_nothing_that_holds_it() -> None:
    vast = Wire(ok()).provider()
    assert KEY not in repr(vast) + repr(vars(vast)) + str(vast.http)


# Destroying.


@pytest.mark.parametrize(
    "answer", [ok(), no(404, "no_such_instance"), no(404, "not_found"), no(200, "no_such_instance")]
)
def test_gone_is_gone(answer: httpx.Response) -> None:
    wire = Wire(answer)
    wire.provider().destroy("11")
    assert (wire.requests[0].method, wire.requests[0].url.path) == ("DELETE", "/api/v0/instances/11/")


@pytest.mark.parametrize(
    "answer",
    [
        no(404, "auth_error", "Invalid user key"),
        no(404, "", "Session expired. Please log in again."),
        no(404, "something_else"),
        no(404, "not_found", "Session expired. Please log in again."),
        httpx.Response(404, text="<html>404</html>"),
        httpx.Response(404),
        no(400, "invalid_args"),
        no(200, "internal", "try again"),
        httpx.Response(200),
        httpx.Response(200, text="<html>maintenance</html>"),
        httpx.Response(410, json={"success": False, "error": "deprecated_endpoint"}),
    ],
)
def test_anything_else_is_not(answer: httpx.Response) -> None:
    with pytest.raises(ProviderUnavailable):
        Wire(answer).provider().destroy("11")


def test_a_delete_whose_answer_is_lost_is_sent_again() -> None:
    wire = Wire(httpx.ReadError("reset"), httpx.Response(500), no(404, "no_such_instance"))
    wire.provider().destroy("11")
    assert len(wire.requests) == 3


def test_an_id_stays_in_its_place_of_the_path() -> None:
    wire = Wire(no(404, "no_such_instance"))
    wire.provider().destroy("../../users/current")
    assert wire.requests[0].url.raw_path == b"/api/v0/instances/..%2F..%2Fusers%2Fcurrent/"


# A life.


@pytest.fixture
def market() -> Market:
    market = Market(seed=9)
    market.add_account(KEY)
    market.seed_offers(64)
    return market


def order(vast: VastProvider, bid: float | None = None) -> Order:
    offer = vast.scan()[0]
    return Order(offer.offer_id, "provefleet:c:i", {}, image=IMAGE, disk_gb=32, bid_dollars_per_hour=bid)


def test_a_machine_from_offer_to_bill(market: Market) -> None:
    vast = on_market(market)
    number = vast.rent(order(vast))
    seen = []
    for _ in range(60):
        (instance,) = vast.list().instances
        seen.append(instance.status)
        market.advance(2)
        if instance.status == RUNNING:
            break
    assert set(seen) == {LOADING, RUNNING}
    assert instance.dollars_per_hour == pytest.approx(market.instances[int(number)].offer.dph_base, rel=0.2)
    market.life.exit(market.instances[int(number)], 0)
    market.advance(5)
    assert [i.status for i in vast.list().instances] == [EXITED]
    ticket = vast.request_logs(number)
    logs: dict[str, bytes] = {}
    while not logs:
        try:
            logs = vast.fetch_logs(ticket, 10_000)
        except LogsNotReady:
            market.advance(1)
    assert sorted(logs) == ["provider-daemon.log", "provider.log"]
    vast.destroy(number)
    assert vast.list().instances == []
    market.advance(2 * 86_400)
    dollars = sum(c.dollars for c in vast.charges(market.now_ms - 3 * 86_400_000, market.now_ms))
    assert dollars == pytest.approx(market.bill("provefleet:c:i"), abs=1e-5)
    assert market.violations == []


def test_outbid_shows_in_the_next_list(market: Market) -> None:
    vast = on_market(market)
    offer = next(o for o in vast.scan() if o.facts["min_bid_dollars_per_hour"])
    wanted = Order(offer.offer_id, "provefleet:c:i", {}, image=IMAGE, disk_gb=32, bid_dollars_per_hour=0.9)
    number = vast.rent(wanted)
    market.advance(90)
    market.life.outbid(market.instances[int(number)])
    assert [(i.status, i.stopped_why) for i in vast.list().instances] == [(STOPPED, "outbid")]


def test_without_credit_all_stop_and_it_is_said_why(market: Market) -> None:
    vast = on_market(market)
    vast.rent(order(vast))
    market.advance(90)
    market.accounts[0].purse.pay(-30)
    market.advance(10)
    assert [(i.status, i.stopped_why) for i in vast.list().instances] == [(STOPPED, "no_credit")]


def test_the_key_in_a_transport_of_ones_own_is_still_sent_to_one_host_only() -> None:
    wire = Wire(page(), httpx.Response(308, headers={"Location": "https://vast.ai/api/v0/"}))
    vast = wire.provider()
    vast.list()
    with pytest.raises(ProviderUnavailable, match="set PROVEFLEET_VAST_URL"):
        vast.list()
    assert {r.url.host for r in wire.requests} == {"console.vast.ai"}
