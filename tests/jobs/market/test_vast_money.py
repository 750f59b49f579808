"""Credit and the bill."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from jobs.market.providers.base import AccountFacts, ChargeFacts, ProviderUnavailable
from tests.fakes.vast.market import Market
from tests.jobs.market.wire import KEY, T0_MS, Wire, ok, on_market

DAY_MS = 86_400_000


def item(kind: str, amount: Any, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "amount": amount, "source": None, "items": [], **fields}


def charge(*items: Any, amount: Any = 0.5, **fields: Any) -> dict[str, Any]:
    return {
        "start": 1_780_000_000, "end": 1_780_003_600, "type": "instance", "source": "instance-11", "amount": amount,
        "metadata": {"label": "provefleet:c:i"}, "items": list(items), **fields,
    }  # fmt: skip


def bill(*rows: Any) -> list[ChargeFacts]:
    return list(Wire(ok(results=list(rows), next_token=None)).provider().charges(T0_MS, T0_MS + DAY_MS))


def test_credit_and_nothing_else_is_read_of_the_account() -> None:
    provider = Wire(ok(credit=12.5, balance=0, api_key="s3cret", email="x@example.com")).provider()
    assert provider.account() == AccountFacts(12.5)


@pytest.mark.parametrize("credit", [None, "much", True, float("nan"), float("inf"), []])
def test_a_credit_that_is_no_number_is_not_known(credit: Any) -> None:
    with pytest.raises(ProviderUnavailable, match="answer to account can't be used"):
        Wire(ok(credit=credit, balance=5)).provider().account()


def test_credit_may_be_below_zero() -> None:
    assert Wire(ok(credit=-0.25)).provider().account() == AccountFacts(-0.25)


def test_the_bill_is_asked_for_by_day_and_for_instances() -> None:
    wire = Wire(ok(results=[], next_token=None))
    assert wire.provider().charges(T0_MS, T0_MS + 1500) == []
    asked = httpx.QueryParams(wire.requests[0].url.query)
    assert asked["select_filters"] == '{"day": {"gte": 1780000000, "lte": 1780000002}, "type": {"in": ["instance"]}}'
    assert asked["limit"] == "500"


def test_a_line_for_each_kind_of_cost() -> None:
    lines = bill(charge(item("gpu", 0.4), item("disk", 0.0625), item("bwd", 0.0375)))
    assert [(line.kind, line.dollars) for line in lines] == [("gpu", 0.4), ("disk", 0.0625), ("bwd", 0.0375)]
    assert {(c.provider_id, c.label, c.begin_ms, c.end_ms) for c in lines} == {
        ("11", "provefleet:c:i", 1_780_000_000_000, 1_780_003_600_000)
    }


def test_items_may_be_nested_by_day() -> None:
    first = charge(item("gpu", 0.2), amount=0.2, type="day", start=1_780_000_000, end=1_780_001_000)
    second = charge(item("gpu", 0.3), amount=0.3, type="day", start=1_780_001_000, end=1_780_003_600)
    lines = bill(charge(first, second))
    assert [(line.kind, line.begin_ms, line.dollars) for line in lines] == [
        ("gpu", 1_780_000_000_000, 0.2),
        ("gpu", 1_780_001_000_000, 0.3),
    ]


def test_what_the_items_leave_out_is_paid_for_all_the_same() -> None:
    lines = bill(charge(item("gpu", 0.3)), charge(amount=0.25, items=None))
    assert [(line.kind, round(line.dollars, 9)) for line in lines] == [
        ("gpu", 0.3),
        ("instance", 0.2),
        ("instance", 0.25),
    ]


def test_rounding_is_no_cost() -> None:
    assert [line.kind for line in bill(charge(item("gpu", 0.4986)))] == ["gpu"]


@pytest.mark.parametrize(
    "row",
    [
        "noise",
        charge(amount=None),
        charge(amount="free"),
        charge(start=None),
        charge(source=None),
        charge(source="volume-3"),
        charge(source="instance-x"),
        charge(item("gpu", None)),
        charge("noise"),
    ],
)
def test_half_a_bill_is_none(row: Any) -> None:
    with pytest.raises(ProviderUnavailable, match="answer to charges can't be used"):
        bill(charge(), row)


def test_pages_are_read_to_the_end_and_no_token_twice() -> None:
    wire = Wire(ok(results=[charge()], next_token="a"), ok(results=[charge(source="instance-12")], next_token=None))
    assert [c.provider_id for c in wire.provider().charges(T0_MS, T0_MS)] == ["11", "12"]
    assert wire.requests[1].url.params["after_token"] == "a"
    with pytest.raises(ProviderUnavailable):
        Wire(ok(results=[charge()], next_token="a")).provider().charges(T0_MS, T0_MS)


def test_the_bill_of_a_market_is_its_bill() -> None:
    market = Market(seed=6)
    account = market.add_account(KEY)
    mine = [market.add_instance(account, f"label-{n}") for n in range(3)]
    market.advance(1800)
    for instance in mine:
        market.transfer(instance, down_bytes=3_000_000_000, up_bytes=500_000_000)
    provider = on_market(market)
    for instance in mine:
        provider.destroy(str(instance.id))
    market.advance(2 * 86_400)
    lines = provider.charges(market.now_ms - 3 * DAY_MS, market.now_ms)
    for instance in mine:
        by_kind = {c.kind: c.dollars for c in lines if c.provider_id == str(instance.id)}
        assert by_kind == pytest.approx(market.bill_by_kind(instance.id), abs=1e-6)
    assert sum(c.dollars for c in lines) == pytest.approx(market.bill(), abs=1e-5)
    credit = provider.account()
    assert credit is not None
    assert credit.credit_dollars == pytest.approx(25 - market.bill(), abs=0.01)
