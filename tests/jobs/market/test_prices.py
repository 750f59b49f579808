"""What a rental costs, from the offer's own figures; and the most that is held for it."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.domain.models import Instance, Run
from jobs.market.prices import (
    ALLOWED_DOWN_BYTES,
    ALLOWED_UP_BYTES,
    GB,
    Price,
    Traffic,
    bid_for,
    hold_dollars,
    least_dollars,
    money,
    price_of,
    price_of_instance,
)
from jobs.market.providers.base import OfferFacts
from jobs.settings import Settings

SETTINGS = Settings(evidence_deadline_s=120)
# Vast's own example (vast_api 2.1): 10 GB at $0.14933 a GB and month are $0.002074 an hour.
FACTS = {"disk_gb": 10, "disk_dollars_per_gb_month": 0.14933, "gpu_dollars_per_hour": 0.36}


def offer(total: float = 0.36 + 0.002074, **facts: Any) -> OfferFacts:
    return OfferFacts("o1", "m1", total, facts={**FACTS, **facts})


def test_the_disk_that_is_rented_is_the_disk_that_is_paid() -> None:
    price = price_of(offer(), 10)
    assert price.dollars_per_hour == pytest.approx(0.362074, abs=1e-6)
    assert price_of(offer(), 100).disk_dollars_per_hour == pytest.approx(0.02074, abs=1e-5)
    assert price_of(offer(), 100).gpu_dollars_per_hour == pytest.approx(0.36, abs=1e-6)


def test_of_parts_and_sum_the_dearer_counts() -> None:
    assert price_of(offer(total=0.5), 10).dollars_per_hour == pytest.approx(0.5)
    assert price_of(offer(total=0.3), 10).dollars_per_hour == pytest.approx(0.362074, abs=1e-6)


@pytest.mark.parametrize("value", [None, "0.2", float("nan"), float("inf"), -1.0, [], 0])
def test_a_price_that_is_no_price_costs_nothing_more(value: Any) -> None:
    facts = dict.fromkeys(("disk_dollars_per_gb_month", "gpu_dollars_per_hour", "dollars_per_gb_up"), value)
    price = price_of(OfferFacts("o1", "m1", 0.4, facts={**facts, "disk_gb": value}), 32)
    assert (price.dollars_per_hour, price.traffic_dollars) == (0.4, 0.0)


def test_an_offer_without_parts_is_its_price() -> None:
    assert price_of(OfferFacts("o1", "m1", 0.36), 32) == Price(0.36)


def test_a_bid_replaces_the_gpu_and_the_disk_comes_on_top() -> None:
    price = price_of(offer(), 10, bid=0.1)
    assert price.dollars_per_hour == pytest.approx(0.102074, abs=1e-6)


def test_bytes_cost_in_both_directions() -> None:
    price = price_of(offer(dollars_per_gb_down=0.01, dollars_per_gb_up=0.03), 10, traffic=Traffic(3 * GB, GB))
    down, up = 3 + ALLOWED_DOWN_BYTES / GB, 1 + ALLOWED_UP_BYTES / GB
    assert price.traffic_dollars == pytest.approx(0.01 * down + 0.03 * up)
    assert price.of(Traffic(GB, 2 * GB)) == pytest.approx(0.07)


def test_a_reservation_holds_the_longest_life_the_tail_and_the_bytes() -> None:
    price = Price(0.3, 0.06, traffic_dollars=0.25)
    tail = 120 + 900 + 60
    assert hold_dollars(SETTINGS, price, 3600, 900, None) == pytest.approx(0.36 * (3600 + tail) / 3600 + 0.25)
    assert hold_dollars(SETTINGS, price, 3600, 900, 0.5) == 0.5
    assert least_dollars(SETTINGS, price, 900) == pytest.approx(0.36 * tail / 3600 + 0.25)


def test_a_price_survives_its_row() -> None:
    price = price_of(offer(dollars_per_gb_down=0.01), 10)
    assert price_of_instance(Instance(price=price.to_json(), dollars_per_hour=9.0)) == price
    assert price_of_instance(Instance(price={}, dollars_per_hour=0.7)) == Price(0.7)


@pytest.mark.parametrize(
    ("run", "facts", "bid", "word"),
    [
        ({}, {"min_bid_dollars_per_hour": 0.1}, None, ""),
        ({"interruptible": True}, {"min_bid_dollars_per_hour": 0.1}, 0.11, ""),
        ({"interruptible": True}, {}, None, "can't be had interruptible"),
        ({"interruptible": True, "bid_dollars_per_hour": 0.2}, {"min_bid_dollars_per_hour": 0.1}, 0.2, ""),
        ({"interruptible": True, "bid_dollars_per_hour": 0.09}, {"min_bid_dollars_per_hour": 0.1}, None, "bids from"),
        ({"interruptible": True, "max_dollars_per_hour": 0.107}, {"min_bid_dollars_per_hour": 0.1}, 0.104926, ""),
        ({"interruptible": True, "max_dollars_per_hour": 0.1}, {"min_bid_dollars_per_hour": 0.1}, None, "bids from"),
    ],
    ids=["on-demand", "a-tenth-over", "no-bids", "own", "own-too-low", "within-the-limit", "limit-too-low"],
)
def test_what_is_bid(run: dict[str, Any], facts: dict[str, Any], bid: float | None, word: str) -> None:
    asked = {"interruptible": False, "bid_dollars_per_hour": None, "max_dollars_per_hour": None, **run}
    got, why = bid_for(Run(**asked), offer(**facts), 10)
    assert got == (None if bid is None else pytest.approx(bid, abs=1e-6))
    assert word in why
    assert bool(why) == bool(word)


def test_dollars_in_words() -> None:
    assert [money(d) for d in (0, 0.01234, 1, 1234.5)] == ["$0.00", "$0.0123", "$1.00", "$1,234.50"]
