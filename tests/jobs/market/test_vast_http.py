"""Every way a request to Vast.ai can end, and the account key, which none of them may show."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from jobs.market.providers.base import KeyRefused, Order, ProviderError, ProviderUnavailable, SearchQuotaUsedUp
from jobs.market.providers.vast import VastProvider
from tests.jobs.market.wire import IMAGE, KEY, T0_MS, Reply, Wire, no, ok, page

ORDER = Order("7001", "provefleet:c:i", {"PROVEFLEET_AGENT_URL": "https://a.example"}, image=IMAGE, disk_gb=32)
CALLS: dict[str, Callable[[VastProvider], object]] = {
    "scan": lambda p: p.scan(),
    "rent": lambda p: p.rent(ORDER),
    "list": lambda p: p.list(),
    "request_logs": lambda p: p.request_logs("11"),
    "destroy": lambda p: p.destroy("11"),
    "account": lambda p: p.account(),
    "charges": lambda p: p.charges(T0_MS, T0_MS + 86_400_000),
}


@pytest.fixture(params=sorted(CALLS))
def call(request: pytest.FixtureRequest) -> Callable[[VastProvider], object]:
    return CALLS[request.param]


# The key.


def test_the_key_travels_in_one_header_and_nowhere_else(call: Callable[[VastProvider], object]) -> None:
    wire = Wire(no(404, "no_such_instance"))
    with pytest.raises(ProviderError) if call is not CALLS["destroy"] else nullcontext():
        call(wire.provider())
    sent = wire.requests[0]
    assert sent.headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in str(sent.url)
    assert KEY.encode() not in sent.content


@pytest.mark.parametrize(
    "url",
    ["http://console.vast.ai", "http://10.0.0.5:8000", "http://localhost.evil.example", "https://[bad", "http://"],
)
def test_the_key_is_not_sent_in_clear(url: str, call: Callable[[VastProvider], object]) -> None:
    wire = Wire(ok())
    with pytest.raises(KeyRefused, match="PROVEFLEET_VAST_URL must begin with https://"):
        call(wire.provider(vast_url=url))
    assert wire.requests == []


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8123", "http://localhost:8123", "http://[::1]:8123", "https://x.example"]
)
def test_loopback_and_https_will_do(url: str) -> None:
    wire = Wire(page())
    assert wire.provider(vast_url=url).list().complete
    assert str(wire.requests[0].url).startswith(url + "/api/v1/instances/")


def test_without_a_key_each_call_says_what_to_set(call: Callable[[VastProvider], object]) -> None:
    wire = Wire(ok())
    with pytest.raises(KeyRefused, match="set PROVEFLEET_VAST_API_KEY"):
        call(wire.provider(vast_api_key=SecretStr("")))
    assert wire.requests == []


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_a_key_that_can_be_none_is_not_sent(key: str) -> None:
    with pytest.raises(KeyRefused, match="holds characters that no key has") as refused:
        Wire(ok()).provider(vast_api_key=SecretStr(key)).list()
    assert key not in str(refused.value)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int, call: Callable[[VastProvider], object]) -> None:
    wire = Wire(httpx.Response(status, headers={"Location": "https://evil.example/api/v0/"}))
    with pytest.raises(ProviderUnavailable, match=r"points to evil\.example"):
        call(wire.provider())
    assert {request.url.host for request in wire.requests} == {"console.vast.ai"}


def _leaky(request: httpx.Request) -> httpx.Response:
    """An answer that says the key back, in each of its parts."""
    return httpx.Response(500, json={"success": False, "error": KEY, "msg": f"key {KEY}", "api_key": KEY})


LEAKS: list[Reply] = [
    _leaky,
    lambda request: httpx.Response(400, json={"success": False, "error": "invalid_args", "msg": f"bad key {KEY}"}),
    lambda request: httpx.Response(403, text=f"not for {KEY}"),
    lambda request: httpx.Response(429, text=f"{KEY} is too fast"),
    lambda request: httpx.Response(302, headers={"Location": f"https://{KEY}.example"}),
    httpx.ConnectError(f"no route for Bearer {KEY}"),
    httpx.ReadTimeout(f"{KEY}"),
]


@pytest.mark.parametrize("leak", LEAKS)
def test_the_key_is_in_no_error_no_log_and_no_chain(
    leak: Reply, call: Callable[[VastProvider], object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    provider = Wire(leak).provider()
    with pytest.raises(ProviderError) as raised:
        call(provider)
    shown = "".join(traceback.format_exception(raised.value)) + repr(raised.value) + caplog.text
    shown += repr(provider) + repr(vars(provider))
    assert KEY not in shown
    link: BaseException | None = raised.value
    while link is not None:
        assert KEY not in str(link)
        assert not isinstance(link, httpx.HTTPError), "it holds the request, and that the key"
        link = link.__cause__ or link.__context__


# What is about the key is never about the machine.

KEY_TROUBLES = [
    no(404, "auth_error", "Invalid user key"),
    no(401, "unauthorized", "Invalid user key"),
    no(401, "2fa_required", "Two factor authentication is required"),
    no(403, "forbidden", "This action requires login."),
    no(404, "not_found", "Session expired. Please log in again."),
    httpx.Response(403, json={"success": False, "msg": "This action requires permission instance_write"}),
    httpx.Response(200, json={"success": False, "error": "auth_error", "msg": "Invalid user key"}),
]


@pytest.mark.parametrize("answer", KEY_TROUBLES)
def test_a_key_that_is_not_accepted_says_so(answer: httpx.Response, call: Callable[[VastProvider], object]) -> None:
    wire = Wire(answer)
    with pytest.raises(KeyRefused, match="does not accept our key"):
        call(wire.provider())
    assert len(wire.requests) == 1, "asking again can't help"


# Lost answers.

LOST = [
    httpx.ConnectError("refused"),
    httpx.ReadError("reset"),
    httpx.ReadTimeout("silence"),
    httpx.RemoteProtocolError("closed"),
    httpx.Response(500, text="oops"),
    httpx.Response(502, text="<html>bad gateway</html>"),
    httpx.Response(504, json={"success": False, "error": "timeout"}),
]


@pytest.mark.parametrize("lost", LOST)
def test_a_create_is_sent_once(lost: Reply) -> None:
    wire = Wire(lost)
    with pytest.raises(ProviderUnavailable):
        wire.provider().rent(ORDER)
    assert len(wire.requests) == 1


@pytest.mark.parametrize("lost", LOST)
def test_what_may_be_repeated_is(lost: Reply) -> None:
    wire = Wire(lost, lost, page())
    assert wire.provider().list().complete
    assert len(wire.requests) == 3
    assert wire.slept_s[1] > wire.slept_s[0], "the pauses grow"


def test_but_not_for_ever() -> None:
    wire = Wire(httpx.ConnectError("refused"))
    with pytest.raises(
        ProviderUnavailable, match=r"did not answer destroy: ConnectError: refused; .* asked again later"
    ):
        wire.provider().destroy("11")
    assert len(wire.requests) == 4


@pytest.mark.parametrize("url", ["https://x:99999", "https://", "https://x y/", "https://xn--/"])
def test_an_address_that_is_none_is_an_error_like_any_other(url: str, call: Callable[[VastProvider], object]) -> None:
    wire = Wire(httpx.ConnectError("nowhere"))
    with pytest.raises(ProviderUnavailable):
        call(wire.provider(vast_url=url))


def test_a_server_that_is_down_may_say_for_how_long() -> None:
    wire = Wire(
        httpx.Response(503, headers={"Retry-After": "30"}), httpx.Response(500, json={"retry_after": 5}), page()
    )
    assert wire.provider().list().complete
    assert wire.times_ms[1] - wire.times_ms[0] >= 30_000
    assert 5000 <= wire.times_ms[2] - wire.times_ms[1] < 6000


# Too frequent.


def test_a_create_is_sent_again_after_too_frequent() -> None:
    wire = Wire(httpx.Response(429, text="API requests too frequent endpoint threshold=4.5"), ok(new_contract=11))
    assert wire.provider().rent(ORDER) == "11"
    assert wire.times_ms[1] - wire.times_ms[0] >= 12_000, "the documented penalty"


@pytest.mark.parametrize(
    ("answer", "least_s", "most_s"),
    [
        (httpx.Response(429, headers={"Retry-After": "7"}), 7, 7.5),
        (httpx.Response(429, json={"retry_after": 9.5}), 9.5, 10),
        (httpx.Response(429, headers={"Retry-After": "7"}, json={"retry_after": 30}), 7, 7.5),
        (httpx.Response(429, headers={"Retry-After": "Thu, 28 May 2026 20:27:00 GMT"}), 20, 20.5),
        (httpx.Response(429, headers={"Retry-After": "soon"}), 2, 3),
        (httpx.Response(429, headers={"Retry-After": "-4"}), 2, 3),
        (httpx.Response(429, headers={"Retry-After": "nan"}), 2, 3),
        (httpx.Response(429, json={"retry_after": None, "detail": "too frequent"}), 2, 3),
        (httpx.Response(429, headers={"Retry-After": "0"}), 1, 1.5),
    ],
)
def test_the_pause_is_the_one_asked_for_or_a_growing_one(answer: httpx.Response, least_s: float, most_s: float) -> None:
    wire = Wire(answer, page())
    assert wire.provider().list().complete
    assert least_s <= (wire.times_ms[1] - wire.times_ms[0]) / 1000 <= most_s


def test_a_long_pause_is_not_waited_out_by_a_job_but_kept_by_all() -> None:
    wire = Wire(httpx.Response(429, headers={"Retry-After": "9999"}), page())
    provider = wire.provider()
    for _ in range(2):
        with pytest.raises(ProviderUnavailable, match=r"allows the next list in 1[12]"):
            provider.list()
    assert len(wire.requests) == 1
    wire.now_ms += 121_000
    assert provider.list().complete


QUOTA = {"success": False, "error": "search_quota_exceeded"}


def test_the_daily_quota_of_searches_is_named_with_its_end_and_not_tried_again() -> None:
    midnight_s = (T0_MS // 86_400_000 + 1) * 86_400
    wire = Wire(httpx.Response(429, headers={"X-RateLimit-Reset": str(midnight_s)}, json=QUOTA))
    provider = wire.provider()
    for _ in range(3):
        with pytest.raises(SearchQuotaUsedUp, match="used up until 2026-05-29 00:00 UTC") as used_up:
            provider.scan()
        assert used_up.value.again_ms == pytest.approx(midnight_s * 1000, abs=1000)
    assert len(wire.requests) == 1
    wire.replies = [ok(offers=[])]
    wire.now_ms = midnight_s * 1000 + 1
    assert provider.scan() == []


@pytest.mark.parametrize("reset", ["", "0", "never", "99999999999", str(T0_MS // 1000 - 5)])
def test_a_quota_without_a_usable_end_lasts_until_midnight(reset: str) -> None:
    with pytest.raises(SearchQuotaUsedUp, match="until 2026-05-29 00:00 UTC"):
        Wire(httpx.Response(429, headers={"X-RateLimit-Reset": reset}, json=QUOTA)).provider().scan()


def test_each_route_keeps_its_documented_distance() -> None:
    wire = Wire(no(404, "no_such_instance"))
    provider = wire.provider()
    for _ in range(4):
        provider.destroy("11")
    gaps = [b - a for a, b in zip(wire.times_ms, wire.times_ms[1:], strict=False)]
    assert all(3000 <= gap <= 3600 for gap in gaps)


# Bodies.

NO_JSON = [
    httpx.Response(200, text="<html>We are down for maintenance</html>", headers={"Content-Type": "text/html"}),
    httpx.Response(200, content=b""),
    httpx.Response(200, content=b"\xff\xfe\x00"),
    httpx.Response(200, text="null"),
    httpx.Response(200, text='"ok"'),
    httpx.Response(200, text="[" * 100_000),
    httpx.Response(200, text="1" * 10_000),
    httpx.Response(200, json={"success": False}),
    httpx.Response(200, json={"success": None}),
    httpx.Response(200, json=[]),
    httpx.Response(204),
]


@pytest.mark.parametrize("answer", NO_JSON)
def test_a_200_without_the_promised_json_is_no_success(
    answer: httpx.Response, call: Callable[[VastProvider], object]
) -> None:
    with pytest.raises(ProviderUnavailable) as raised:
        call(Wire(answer).provider())
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600


def test_a_body_without_end_is_cut_off() -> None:
    given_out = 0

    def endless() -> Iterator[bytes]:
        nonlocal given_out
        while True:
            given_out += 1
            yield b"x" * (1 << 20)

    wire = Wire(lambda request: httpx.Response(200, content=endless()))
    with pytest.raises(ProviderUnavailable, match="an answer of over 16 MiB"):
        wire.provider().list()
    assert given_out <= 4 * 18


def test_an_answer_that_trickles_is_given_up() -> None:
    wire = Wire(ok())

    def trickle() -> Iterator[bytes]:
        for _ in range(9):
            wire.now_ms += 20_000
            yield b" "

    wire.replies = [lambda request: httpx.Response(200, content=trickle())]
    with pytest.raises(ProviderUnavailable, match="took over 60 s"):
        wire.provider().account()


def test_what_is_compressed_unasked_is_not_opened() -> None:
    wire = Wire(
        lambda request: httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(b"x"))
    )
    with pytest.raises(ProviderUnavailable, match="compressed"):
        wire.provider().account()
    assert wire.requests[0].headers["Accept-Encoding"] == "identity"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([KEY, "7", "1e999", "\ud800\x00"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
# As the answers spell them, so that the fuzz gets past the first look.
SPELT = """
success error msg detail message offers instances total_instances next_token new_contract results credit id label
result_url machine_id dph_total gpu_name gpu_ram num_gpus ports actual_status status_msg extra_env metadata amount
start end source items retry_after is_bid end_date
"""
NAMES = st.sampled_from(SPELT.split())
ROWS = st.dictionaries(NAMES, JSON | st.lists(st.dictionaries(NAMES, JSON, max_size=6), max_size=3), max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    status=st.sampled_from([200, 200, 201, 400, 404, 410, 429, 483, 500, 503]),
    body=ROWS.map(lambda row: json.dumps(row).encode()) | st.binary(max_size=40),
    name=st.sampled_from(sorted(CALLS)),
)
def test_no_body_makes_it_raise_anything_but_our_errors(status: int, body: bytes, name: str) -> None:
    wire = Wire(httpx.Response(status, content=body))
    said = ""
    try:
        CALLS[name](wire.provider())
    except ProviderError as error:
        said = str(error)
    assert KEY not in said
    assert "\n" not in said
    if name == "rent" and status != 429:
        assert len(wire.requests) == 1
