"""What the overview, an instance, the settings and every page's frame say of the market."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import update

from jobs.context import Context
from jobs.domain.db import writing
from jobs.domain.market_models import Account, Cap, Snapshot
from jobs.domain.models import Instance
from jobs.domain.work import record
from tests.web.seed import HOSTILE, Fleet
from tests.web.site import Browser, Clock, seeded, settings_of
from web import create_app


def test_an_instance_says_what_the_provider_says(fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    viewer = signed_in("viewer")
    page = viewer.get(f"/instances/{fleet.instances['bid']}").text
    for text in (
        "ssh -p 20011 root@88.21.4.7",
        "ssh -p 31877 root@ssh5.vast.ai",
        "it may be outbid",
        "as bid",
        " held",
    ):
        assert text in page
    assert "measured twice on this machine" in page
    pulling = viewer.get(f"/instances/{fleet.instances['pulling']}").text
    assert "Downloading 411MB/1.2GB &lt;b&gt;fast&lt;/b&gt;" in pulling


def test_a_run_shows_its_tries_and_what_was_passed_over(fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    page = signed_in("viewer").get(f"/runs/{fleet.runs['tried']}").text
    assert "outbid: the provider stopped it" in page
    assert "19 offers were passed over" in page
    assert "marked broken 12 h ago" in page
    assert HOSTILE[1] not in page


def test_the_new_run_says_what_is_left_and_why_nothing_would_be_rented(
    context: Context, signed_in: Callable[[str], Browser]
) -> None:
    operator = signed_in("operator")
    query = "/runs/new/sum?provider=vast&circuit_kind=chain&circuit_size=4096&circuit_curve=bls12381&offer=9400000"
    fine = operator.get(query).text
    assert "$25.00</span> today" in fine
    assert "$120.00</span> by you this month" in fine
    assert "Nothing would be rented" not in fine
    with writing(context.sessions) as session:
        session.get_one(Account, "vast").credit_dollars = 0.5
    assert "under the floor" in operator.get(query).text
    with writing(context.sessions) as session:
        session.get_one(Cap, "day").dollars = 0.01
    assert "Nothing would be rented now" in operator.get(query).text


def test_what_threatens_the_money_needs_you(
    context: Context, fleet: Fleet, signed_in: Callable[[str], Browser]
) -> None:
    viewer = signed_in("viewer")
    with writing(context.sessions) as session:
        session.get_one(Account, "vast").credit_dollars = 1.0
        session.get_one(Cap, "day").dollars = 1.0
        session.get_one(Snapshot, "vast").error = "answered 502 with a page of HTML"
        session.execute(update(Instance).where(Instance.id == fleet.instances["bid"]).values(machine_id="48807"))
        for kind in ("instance.adopted", "instance.wrong_kind", "provider.key_refused"):
            record(session, context.now_ms(), "reconcile", kind, f"because of {kind}", instance_id=fleet.gaps)
    page = viewer.get("/").text
    for text in (
        "The credit at vast is $1.00, under $2.00",
        "The day&#39;s cap, $1.00, is used up",
        "answered 502 with a page of HTML",
        "because of instance.adopted",
        "because of instance.wrong_kind",
        "because of provider.key_refused",
        "Machine 48807 works now and is marked broken",
    ):
        assert text in page, text


def test_the_account_that_cannot_be_read(context: Context, signed_in: Callable[[str], Browser]) -> None:
    with writing(context.sessions) as session:
        session.get_one(Account, "vast").error = "the key is refused: Invalid user key"
    admin = signed_in("admin")
    for path in ("/", "/costs", "/settings"):
        assert "Invalid user key" in admin.get(path).text, path


def test_the_settings_say_whether_machines_can_be_rented(signed_in: Callable[[str], Browser]) -> None:
    page = signed_in("operator").get("/settings").text
    assert "at https://agents.provefleet.dev" in page
    assert "set PROVEFLEET_PAYLOAD_IMAGE" in page
    assert "$14.20 of credit" in page
    assert "0" * 64 not in page


@pytest.mark.parametrize(
    ("url", "key", "shown"),
    [
        ("http://127.0.0.1:9999", "0" * 64, True),
        ("http://127.0.0.1:9999", "", False),
        ("https://console.vast.ai", "0" * 64, False),
        ("https://console.vast.ai/", "0" * 64, False),
    ],
)
def test_a_marketplace_that_is_not_the_real_one_is_on_every_page(
    tmp_path: Path, url: str, key: str, shown: bool
) -> None:
    context, fleet = seeded(settings_of(tmp_path, vast_url=url, vast_api_key=SecretStr(key)), Clock())
    browser = Browser(create_app(context).test_client())
    assert "127.0.0.1:9999" not in browser.get("/sign-in").text
    browser.sign_in("viewer")
    for path in ("/", "/offers", "/costs", f"/runs/{fleet.runs['passed']}", "/audit"):
        assert ("machines and money there are not real" in browser.get(path).text) is shown, path


def test_the_line_on_top_has_the_cap_of_the_day(context: Context, signed_in: Callable[[str], Browser]) -> None:
    viewer = signed_in("viewer")
    assert 'of <span class="money" title="$25">$25.00</span>' in viewer.get("/audit").text
    with writing(context.sessions) as session:
        session.delete(session.get_one(Cap, "day"))
    assert "$25.00" not in viewer.get("/audit").text
