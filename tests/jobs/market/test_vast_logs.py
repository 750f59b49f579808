"""The provider's own logs: which upload is the one that was asked for, and what may be opened at all."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

import httpx
import pytest

from jobs.market.providers.base import LogsNotReady, NoSuchInstance, ProviderUnavailable
from jobs.market.providers.vast import VastProvider
from tests.fakes.vast.instances import Instance
from tests.fakes.vast.logs import Upload
from tests.fakes.vast.market import Market
from tests.jobs.market.wire import KEY, T0_MS, Wire, no, ok, on_market

MAX_BYTES = 100_000
URL = "https://s3.amazonaws.com/vast.ai/instance_logs/0123.log"
TICKET = {"provider_id": "11", "url": URL, "asked_ms": T0_MS}


@pytest.fixture
def market() -> Market:
    market = Market(seed=4)
    market.add_account(KEY)
    return market


@pytest.fixture
def instance(market: Market) -> Instance:
    """A container that has been running for a minute."""
    instance = market.add_instance(market.accounts[0], "provefleet:c:i")
    market.advance(60)
    return instance


def fetch(market: Market, provider: VastProvider, ticket: dict[str, Any], patience_s: int = 130) -> dict[str, bytes]:
    """As `collect` does it: again each second."""
    for _ in range(patience_s):
        try:
            return provider.fetch_logs(ticket, MAX_BYTES)
        except LogsNotReady:
            market.advance(1)
    raise AssertionError("no log in time")


@pytest.mark.parametrize("one_object", [False, True])
def test_both_logs_are_fetched_and_kept_apart(market: Market, instance: Instance, one_object: bool) -> None:
    market.logs.one_object = one_object
    instance.say(market.now_ms, "the daemon speaks")
    provider = on_market(market)
    logs = fetch(market, provider, provider.request_logs(str(instance.id)))
    assert sorted(logs) == ["provider-daemon.log", "provider.log"]
    assert b"still here" in logs["provider.log"]
    assert b"the daemon speaks" not in logs["provider.log"]
    assert b"the daemon speaks" in logs["provider-daemon.log"]
    assert market.violations == [], "the key is not sent to the log host, and no route is called too often"


@pytest.mark.parametrize("skew_s", [0, 3600, -3600])
def test_an_earlier_upload_is_not_taken_for_this_one(market: Market, instance: Instance, skew_s: float) -> None:
    market.skew_s = skew_s
    provider = on_market(market)
    first = fetch(market, provider, provider.request_logs(str(instance.id)))
    market.advance(120)
    begun_ms = market.now_ms
    second = fetch(market, provider, provider.request_logs(str(instance.id)))
    assert market.now_ms > begun_ms
    assert len(second["provider.log"]) > len(first["provider.log"])


def test_the_stale_one_may_stay_for_a_minute(market: Market, instance: Instance) -> None:
    market.logs.planned = [Upload(delay_s=60, stale=b"yesterday's log\n")]
    provider = on_market(market)
    assert b"yesterday" not in fetch(market, provider, provider.request_logs(str(instance.id)))["provider.log"]


@pytest.mark.parametrize("missing", [403, 404])
def test_without_a_container_the_daemons_log_comes_in_the_end(market: Market, instance: Instance, missing: int) -> None:
    market.logs.missing = missing
    market.logs.planned = [Upload(delay_s=None)]
    provider = on_market(market)
    begun_ms = market.now_ms
    assert list(fetch(market, provider, provider.request_logs(str(instance.id)))) == ["provider-daemon.log"]
    assert market.now_ms - begun_ms < 100_000


def test_a_host_that_never_uploads_is_never_ready(market: Market, instance: Instance) -> None:
    instance.actual = "offline"
    provider = on_market(market)
    ticket = provider.request_logs(str(instance.id))
    market.advance(200)
    with pytest.raises(LogsNotReady, match="may be offline"):
        provider.fetch_logs(ticket, MAX_BYTES)


def test_of_a_huge_log_the_end_is_taken(market: Market, instance: Instance) -> None:
    line = b"0123456789abcdef" * 4095 + b"the last words.\n"
    market.logs.planned = [Upload(change=lambda text: line, repeat=5000)]  # 300 MB
    provider = on_market(market)
    log = fetch(market, provider, provider.request_logs(str(instance.id)))["provider.log"]
    assert log == (line * 2)[-MAX_BYTES:]


def test_also_where_the_store_knows_no_ranges() -> None:
    body = b"x" * 300_000 + b"the end"
    wire = Wire(stored(body), no(404, "no_such_instance"))
    assert wire.provider().fetch_logs(TICKET, 1000)["provider.log"] == body[-1000:]
    assert wire.requests[0].headers["Range"] == "bytes=-1000"
    assert "Authorization" not in wire.requests[0].headers


def test_bytes_are_bytes(market: Market, instance: Instance) -> None:
    odd = b"10%\r20%\r30%\n\xff\xfe\x00 no text\n"
    market.logs.planned = [Upload(change=lambda text: odd)]
    provider = on_market(market)
    assert fetch(market, provider, provider.request_logs(str(instance.id)))["provider.log"] == odd


def stored(body: bytes, status: int = 200, age_s: float = -1.0, **headers: str) -> httpx.Response:
    """An object of the store, uploaded `age_s` before we asked."""
    times = {"Date": formatdate(T0_MS / 1000 + 3, usegmt=True)}
    times["Last-Modified"] = formatdate(T0_MS / 1000 - age_s, usegmt=True)
    return httpx.Response(status, content=body, headers={**times, **headers})


def test_an_empty_log_is_one() -> None:
    wire = Wire(stored(b"", 416), no(404, "no_such_instance"))
    wire.now_ms += 3000
    assert wire.provider().fetch_logs(TICKET, 1000) == {"provider.log": b""}


NOT_YET = [
    stored(b"old", age_s=60),
    stored(b"old", 416, age_s=60),
    stored(b"when?", **{"Last-Modified": "yesterday"}),
    httpx.Response(200, content=b"when?"),
    httpx.Response(403, content=b"<Error/>"),
    httpx.Response(404, content=b"<Error/>"),
    httpx.Response(503),
    httpx.Response(302, headers={"Location": "https://evil.example"}),
]


@pytest.mark.parametrize("answer", NOT_YET)
def test_what_is_not_known_to_be_new_is_not_there_yet(answer: httpx.Response) -> None:
    wire = Wire(answer)
    wire.now_ms += 3000
    with pytest.raises(LogsNotReady):
        wire.provider().fetch_logs(TICKET, 1000)
    assert len(wire.requests) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://s3.amazonaws.com/x.log",
        "https://169.254.169.254/latest/meta-data/",
        "https://localhost/x.log",
        "https://[::1]/x.log",
        "https://user:pass@s3.amazonaws.com/x.log",
        "file:///etc/passwd",
        "//s3.amazonaws.com/x",
        "https://[bad/x",
        "https://s3.amazonaws.com:99999/x.log",
    ],
)
def test_an_address_that_no_log_has_is_not_opened(url: str) -> None:
    wire = Wire(stored(b"x"))
    with pytest.raises(ProviderUnavailable):
        wire.provider().fetch_logs({**TICKET, "url": url}, 1000)
    assert wire.requests == []


def test_a_marketplace_on_loopback_may_keep_its_logs_there() -> None:
    url = "http://127.0.0.1:8123/vast.ai/x.log"
    wire = Wire(stored(b"x"), no(404, "no_such_instance"))
    wire.now_ms += 3000
    provider = wire.provider(vast_url="http://127.0.0.1:8123")
    assert provider.fetch_logs({**TICKET, "url": url}, 1000) == {"provider.log": b"x"}


@pytest.mark.parametrize(
    "answer", [no(404, "no_such_instance"), no(404, "invalid_id", "no instance 11"), no(404, "not_found")]
)
def test_logs_of_what_is_gone(answer: httpx.Response) -> None:
    with pytest.raises(NoSuchInstance):
        Wire(answer).provider().request_logs("11")


@pytest.mark.parametrize("answer", [ok(), ok(result_url=None), ok(result_url=[URL]), ok(result_url=""), no(200, "x")])
def test_a_request_without_an_address_is_no_request(answer: httpx.Response) -> None:
    with pytest.raises(ProviderUnavailable):
        Wire(answer).provider().request_logs("11")


def test_after_destroy_they_are_gone(market: Market, instance: Instance) -> None:
    provider = on_market(market)
    provider.destroy(str(instance.id))
    with pytest.raises(NoSuchInstance):
        provider.request_logs(str(instance.id))
