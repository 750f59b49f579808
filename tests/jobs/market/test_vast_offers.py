"""Searching: what is sent, how the cap of 64 is passed, and what is believed."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from jobs.market.providers.base import OfferFacts, ProviderUnavailable
from tests.fakes.vast.market import Market
from tests.jobs.market.wire import KEY, Wire, ok, on_market

GOOD: dict[str, Any] = {
    "id": 7001, "ask_contract_id": 7001, "machine_id": 501, "host_id": 77, "gpu_name": "RTX 4090", "num_gpus": 1,
    "gpu_frac": 0.25, "gpu_ram": 24564, "gpu_arch": "nvidia", "compute_cap": 890, "cuda_max_good": 13.0,
    "driver_version": "580.65.06", "cpu_name": "EPYC", "cpu_cores": 64, "cpu_cores_effective": 16.0, "cpu_ram": 262144,
    "cpu_arch": "amd64", "disk_space": 400.5, "inet_down": 812.5, "inet_up": 500, "inet_down_cost": 0.002,
    "inet_up_cost": 0.003, "dph_base": 0.4, "dph_total": 0.4 + 0.15 * 32 / 720, "storage_cost": 0.15, "min_bid": 0.2,
    "reliability2": 0.995, "verification": "verified", "duration": 864000.0, "pcie_bw": 24.5, "direct_port_count": 100,
    "hosting_type": 1, "geolocation": "Quebec, CA", "rentable": True, "rented": False, "external": False,
}  # fmt: skip


def scan(*rows: Any, **settings: Any) -> list[OfferFacts]:
    return Wire(ok(offers=list(rows))).provider(**settings).scan()


def test_every_filter_is_sent_with_every_search() -> None:
    wire = Wire(ok(offers=[GOOD]))
    wire.provider(rent_disk_gb=50).scan()
    on_demand, bid = wire.body(0), wire.body(1)
    assert on_demand == {
        "verified": {"eq": True},
        "external": {"eq": False},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "cpu_arch": {"eq": "amd64"},
        "gpu_arch": {"eq": "nvidia"},
        "num_gpus": {"gte": 1},
        "compute_cap": {"gte": 860},
        "cuda_max_good": {"gte": 13.0},
        "disk_space": {"gte": 50},
        "reliability2": {"gte": 0.9},
        "inet_down": {"gte": 50},
        "duration": {"gte": 3600},
        "type": "on-demand",
        "order": [["dph_total", "asc"]],
        "limit": 64,
        "allocated_storage": 50,
    }
    assert bid == {**on_demand, "type": "bid"}


def test_an_offer_is_read_in_our_units() -> None:
    (offer,) = scan(GOOD)
    assert offer == OfferFacts(
        offer_id="7001", machine_id="501", host_id="77", dollars_per_hour=pytest.approx(0.4066667),
        gpu_model="RTX 4090", num_gpus=1, gpu_ram_bytes=24564 * 2**20, cpu_model="EPYC", cpu_cores=16,
        ram_bytes=64 * 2**30, disk_bytes=400_500_000_000, location="Quebec, CA",
        facts={
            "disk_gb": 32, "min_bid_dollars_per_hour": 0.2, "gpu_frac": 0.25, "gpu_dollars_per_hour": 0.4,
            "disk_dollars_per_gb_month": 0.15, "inet_down_mbps": 812.5, "inet_up_mbps": 500,
            "dollars_per_gb_down": 0.002, "dollars_per_gb_up": 0.003, "reliability": 0.995, "verification": "verified",
            "duration_s": 864000.0,
            "cuda": 13.0, "driver": "580.65.06", "compute_capability": 8.9, "pcie_gbps": 24.5, "direct_ports": 100,
            "datacenter": True,
        },
    )  # fmt: skip


VIOLATIONS: list[dict[str, Any]] = [
    {"verified": False}, {"verification": "deverified"}, {"external": True}, {"rentable": False}, {"rentable": None},
    {"rented": True}, {"cpu_arch": "arm64"}, {"gpu_arch": "amd"}, {"num_gpus": 0}, {"compute_cap": 750},
    {"compute_cap": None}, {"cuda_max_good": 12.8}, {"cuda_max_good": None}, {"disk_space": 31.9},
    {"disk_space": "NaN"},
    {"reliability2": 0.6}, {"reliability2": None}, {"inet_down": 10}, {"duration": 900}, {"duration": float("inf")},
]  # fmt: skip


@pytest.mark.parametrize("violation", VIOLATIONS, ids=str)
def test_a_filter_that_the_service_forgot_is_checked_here(violation: dict[str, Any]) -> None:
    assert [offer.offer_id for offer in scan({**GOOD, **violation}, {**GOOD, "id": 7002})] == ["7002"]


UNUSABLE: list[Any] = [
    {"id": None}, {"id": "seven"}, {"id": -7}, {"machine_id": None}, {"dph_total": None}, {"dph_total": 0},
    {"dph_total": -1}, {"gpu_name": None}, {"gpu_name": ["RTX"]}, {"gpu_ram": None},
]  # fmt: skip


@pytest.mark.parametrize("field", UNUSABLE, ids=str)
def test_what_one_must_know_to_rent_is_there_or_the_offer_is_not(field: dict[str, Any]) -> None:
    assert [offer.offer_id for offer in scan({**GOOD, **field}, "noise", None, {**GOOD, "id": 7002})] == ["7002"]


NEEDED = """
id machine_id gpu_name gpu_ram num_gpus dph_total compute_cap cuda_max_good disk_space reliability2 inet_down duration
rentable
"""


def test_all_else_may_be_missing_or_unheard_of() -> None:
    bare = {name: GOOD[name] for name in NEEDED.split()}
    nulls = dict.fromkeys(GOOD) | bare | {"id": 7002}
    bare |= {"new_field": {"a": [1]}}
    first, second = scan(bare, nulls)
    assert first.cpu_cores == second.cpu_cores == 0
    assert first.facts == second.facts
    assert "dollars_per_gb_down" not in first.facts


def test_numbers_as_text_count() -> None:
    (offer,) = scan({**GOOD, "id": "7001", "cuda_max_good": "13.0", "num_gpus": "2", "dph_total": "0.41"})
    assert (offer.offer_id, offer.num_gpus, offer.dollars_per_hour) == ("7001", 2, 0.41)


def test_text_is_made_fit_for_a_database() -> None:
    (offer,) = scan(
        {**GOOD, "cpu_name": "EP\x00YC\ud800\n" + "x" * 500, "geolocation": "y" * 500, "gpu_name": "RTX_4090"}
    )
    assert offer.cpu_model.startswith("EP YC x")
    assert len(offer.cpu_model) == 200
    assert len(offer.location) == 64
    assert offer.gpu_model == "RTX 4090"


def test_a_price_for_a_smaller_disk_than_ours_is_corrected() -> None:
    (offer,) = scan({**GOOD, "dph_total": 0.4 + 0.15 * 8 / 720}, rent_disk_gb=400)
    assert offer.dollars_per_hour == pytest.approx(0.4 + 0.15 * 400 / 720)


def test_only_an_offer_that_can_be_had_for_a_bid_has_a_least_bid() -> None:
    other = {**GOOD, "id": 7002}
    offers = Wire(ok(offers=[GOOD, other]), ok(offers=[{**other, "min_bid": 0.125}])).provider().scan()
    assert [o.facts["min_bid_dollars_per_hour"] for o in offers] == [None, 0.125]


def test_no_offers_are_no_error_and_one_search() -> None:
    wire = Wire(ok(offers=[]))
    assert wire.provider().scan() == []
    assert len(wire.requests) == 1


@pytest.mark.parametrize("offers", [None, {"id": 1}, "none", 7])
def test_offers_that_are_no_list_are_an_error(offers: Any) -> None:
    with pytest.raises(ProviderUnavailable, match="answer to search can't be used"):
        Wire(ok(offers=offers)).provider().scan()


# Past 64.


def many(first: int, prices: list[float]) -> list[dict[str, Any]]:
    return [{**GOOD, "id": first + n, "dph_base": 0.0, "dph_total": price} for n, price in enumerate(prices)]


def test_a_full_page_of_one_price_is_stepped_over() -> None:
    same, later = many(1, [0.5] * 64), many(100, [0.75, 0.8])
    wire = Wire(ok(offers=same), ok(offers=same), ok(offers=later), ok(offers=[]))
    assert len(wire.provider().scan()) == 66
    assert list(wire.body(1)["dph_total"]) == ["gte"]
    assert list(wire.body(2)["dph_total"]) == ["gt"]
    assert 0.4999 < wire.body(1)["dph_total"]["gte"] < 0.5 < wire.body(2)["dph_total"]["gt"] < 0.5001, "rounding"


def test_a_market_that_never_ends_ends() -> None:
    wire = Wire(ok())

    def endless(request: httpx.Request) -> httpx.Response:
        at = len(wire.requests)
        return ok(offers=many(at * 64, [at + n / 64 for n in range(64)]))

    wire.replies = [endless]
    assert len(wire.provider().scan()) == 16 * 64
    assert len(wire.requests) == 24


def test_a_large_market_is_seen_whole_and_at_its_pace() -> None:
    market = Market(seed=3)
    market.add_account(KEY)
    market.seed_offers(400)
    for offer in list(market.offers.values())[::4]:
        offer.machine.dollars_per_gpu_hour = 0.3  # many at one price
    found = on_market(market, rent_min_cuda=0, rent_min_compute_capability=0).scan()
    fitting = {
        str(o.id)
        for o in market.offers.values()
        if o.machine.verification == "verified" and o.machine.rentable and not o.machine.external
        and o.machine.gpu.arch == "nvidia" and o.machine.reliability >= 0.9 and o.machine.inet_down_mbps >= 50
        and o.machine.disk_gb * len(o.gpus) / o.machine.num_gpus >= 32
    }  # fmt: skip
    assert len(found) > 200
    assert {offer.offer_id for offer in found} == fitting
    assert market.violations == []
