"""What the real client does wrong: why ours is its own. When one of these fails, read the new version."""

from __future__ import annotations

import pytest

from tests.conformance.exchanges import Recorder
from tests.conformance.real import RealClient
from tests.conformance.test_sdk import IMAGE
from tests.fakes.vast.accounts import Account
from tests.fakes.vast.logs import Upload
from tests.fakes.vast.market import Market

pytestmark = pytest.mark.conformance


def cheapest(real: RealClient) -> int:
    return int(real.sdk("search_offers", "", order="dph_total", limit=1).value[0]["id"])


def test_creates_again_after_a_504(real: RealClient, market: Market) -> None:
    """The first PUT rented; the second finds the offer gone; the caller is told that nothing was rented."""
    offer = cheapest(real)
    market.fault("PUT /api/v0/asks", kind="504_after")
    made = real.sdk("create_instance", offer, image=IMAGE, runtype="args")
    assert made.routes == [f"PUT /api/v0/asks/{offer}/"] * 2
    assert "no_such_ask" in made.error["body"]
    assert len(market.live("")) == 1


def test_creates_again_after_a_reset(real: RealClient, market: Market) -> None:
    """Where the marketplace takes both, one call rents two machines and names one."""
    market.double_rent = True
    offer = cheapest(real)
    market.fault("PUT /api/v0/asks", kind="reset_after")
    made = real.sdk("create_instance", offer, image=IMAGE, runtype="args")
    assert made.value["success"] is True
    assert len(market.live("")) == 2


def test_its_pauses_are_too_short(real: RealClient, recorder: Recorder) -> None:
    """Three tries within 0.4 s, where a route wants seconds between two calls."""
    recorder.pause_s = 0.3
    cheap = [real.sdk("show_instances") for _ in range(3)]
    assert any(call.error.get("status") == 429 for call in cheap)
    assert any(len(call.routes) == 3 for call in cheap)


def test_a_refused_create_looks_like_a_good_one(real: RealClient, market: Market) -> None:
    market.fault("PUT /api/v0/asks", kind="success_false")
    made = real.sdk("create_instance", cheapest(real), image=IMAGE, runtype="args")
    assert made.error == {}
    assert made.value["success"] is False


def test_a_failed_listing_looks_like_an_empty_one(real: RealClient, market: Market, account: Account) -> None:
    market.add_instance(account, "is there", foreign=False)
    market.fault("GET /api/v1/instances", kind="success_false")
    listed = real.sdk("show_instances")
    assert (listed.value, listed.error) == ([], {})


def test_one_odd_row_ends_the_listing(real: RealClient, market: Market, account: Account) -> None:
    instance = market.add_instance(account, "odd", foreign=False).id
    market.instances[instance].overrides["start_date"] = None
    assert real.sdk("show_instances").error["type"] == "TypeError"


def test_takes_the_log_of_last_time(real: RealClient, market: Market, account: Account) -> None:
    """The object's name is the same at each request, and what is there already is taken for the answer."""
    instance = market.add_instance(account, "stale", foreign=False).id
    market.advance(1800)
    market.instances[instance].log_source = lambda: b"old\n"
    assert real.sdk("logs", instance).value.endswith("old\n")
    market.instances[instance].log_source = lambda: b"new\n"
    market.logs.planned.append(Upload(delay_s=60.0))
    assert "new" not in real.sdk("logs", instance).value


def test_gives_up_on_logs_after_nine_seconds(real: RealClient, market: Market, account: Account) -> None:
    instance = market.add_instance(account, "silent", foreign=False).id
    market.advance(1800)
    market.logs.planned.append(Upload(delay_s=None))
    late = real.sdk("logs", instance)
    assert late.error["type"] == "TimeoutError"
    assert len(late.routes) == 31


def test_html_is_a_json_error(real: RealClient, market: Market) -> None:
    market.fault("POST /api/v0/bundles", kind="html")
    assert real.sdk("search_offers", "").error["type"] == "JSONDecodeError"


def test_its_execute_command_is_broken(real: RealClient, market: Market, account: Account) -> None:
    """The SDK has the text; the command takes it for a dict."""
    instance = market.add_instance(account, "files", foreign=False).id
    market.advance(1800)
    assert isinstance(real.sdk("execute", instance, "ls").value, str)
    with pytest.raises(AssertionError, match="AttributeError"):
        real.cli("execute", str(instance), "ls", raw=False)
