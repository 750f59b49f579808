"""The exchanges that the core tests hold our own client against are those that the real client has today."""

from __future__ import annotations

import pytest

from tests.conformance.exchanges import RECORDED, Call, keep, kept, shape
from tests.conformance.real import RealClient
from tests.conformance.test_sdk import IMAGE
from tests.fakes.vast.accounts import Account
from tests.fakes.vast.market import Market

pytestmark = pytest.mark.conformance

JOURNEY = RECORDED / "journey.jsonl"


def journey(real: RealClient, market: Market, account: Account) -> None:
    """Every call that our client makes too, with answers of each kind."""
    real.sdk("search_offers", "", order="dph_total", limit=5, storage=32.0)
    real.sdk("search_offers", "", type="bid", order="min_bid", limit=5, storage=32.0)
    offers = [offer["id"] for offer in real.calls[0].understood]
    made = real.sdk("create_instance", offers[0], image=IMAGE, disk=32, runtype="args", label="a", env={"A": "b"})
    instance = made.value["new_contract"]
    real.sdk("create_instance", offers[0], image=IMAGE, disk=32, runtype="args")  # gone by now
    market.add_instance(account, None, foreign=False)
    for state in ("stopped", "exited"):
        other = market.add_instance(account, state, foreign=False)
        market.life.outbid(other) if state == "stopped" else market.life.exit(other, 1)
    real.sdk("show_instance", instance)
    market.advance(1800)
    first = real.sdk("show_instances_v1", {"limit": 2}).value
    real.sdk("show_instances_v1", {"limit": 2, "after_token": first["next_token"]})
    real.sdk("show_instances")
    market.instances[instance].log_source = lambda: b"line one\nthe end\n"
    real.sdk("logs", instance, tail="1000")
    real.sdk("logs", instance, tail="1000", daemon_logs=True)
    real.sdk("show_user")
    real.sdk("destroy_instance", instance)
    real.sdk("destroy_instance", instance)  # which is no success
    real.sdk("show_instance", instance)
    market.advance(2 * 86400)
    now_s = market.now_ms // 1000
    real.sdk("show_invoices_v1", charges=True, start_date=now_s - 4 * 86400, end_date=now_s, charge_type=["instance"])
    real.sdk("show_instances", key="0" * 64)


def outline(call: Call) -> object:
    return call.name, [(e.method, e.status, shape(e.sent), shape(e.answered)) for e in call.exchanges]


def test_the_record_is_of_today(
    real: RealClient, market: Market, account: Account, request: pytest.FixtureRequest
) -> None:
    journey(real, market, account)
    if request.config.getoption("--record"):
        keep(JOURNEY, real.redacted_calls())
    recorded = list(kept(JOURNEY))
    assert [c.name for c in recorded] == [c.name for c in real.calls]
    for then, now in zip(recorded, real.redacted_calls(), strict=True):
        assert outline(then) == outline(now), "after a change of the fake: make test-vast-conformance ARGS=--record"
    assert real.key not in JOURNEY.read_text()
