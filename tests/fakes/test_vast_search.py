"""Search as Vast does it: filters, defaults, order, the cap, the price of the disk."""

from __future__ import annotations

import pytest

from tests.fakes.conftest import Customer
from tests.fakes.vast import motion
from tests.fakes.vast.gpus import GPUS
from tests.fakes.vast.machines import FASTEST, SLOWEST
from tests.fakes.vast.market import Market

ANY = {"verified": {}, "rentable": {}, "rented": {}, "cpu_arch": {}}


def test_offers_look_like_a_market(market: Market, customer: Customer) -> None:
    offers = market.seed_offers(400)
    found = customer.search(**ANY, order=[["dph_total", "asc"]])

    assert len(offers) == len(market.offers) == 400
    assert len(found) == 64
    assert len({o.machine.gpu.name for o in offers}) >= 30
    assert len({o.machine.host_id for o in offers}) < len({o.machine.id for o in offers})
    assert {len(o.gpus) for o in offers} == {1, 2, 4}
    speeds = [o.machine.true_speed for o in offers]
    assert min(speeds) >= SLOWEST
    assert max(speeds) <= FASTEST
    assert max(speeds) / min(speeds) > 1.6
    assert len(GPUS) >= 30


def test_the_same_seed_gives_the_same_market() -> None:
    def rows(seed: int) -> list[tuple[int, int, float]]:
        market = Market(seed)
        return [(o.id, o.machine.id, o.dph_base) for o in market.seed_offers(50)]

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


def test_without_filters_vast_adds_its_own(market: Market, customer: Customer) -> None:
    fine = market.add_machine()
    market.add_machine(verification="unverified")
    market.add_machine(rentable=False)
    market.add_machine(cpu_arch="arm64")
    mine = market.add_machine(num_gpus=2)
    customer.create(mine.offers[0,])

    assert [o["machine_id"] for o in customer.search()] == [fine.id]
    assert len(customer.search(**ANY)) == 5
    assert {o["machine_id"] for o in customer.search(rented={"eq": True})} == {fine.id, mine.id}


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ({"gpu_name": {"eq": "RTX 4090"}}, True),
        ({"gpu_name": {"eq": "RTX_4090"}}, False),
        ({"gpu_name": {"in": ["RTX 3090", "RTX 4090"]}}, True),
        ({"gpu_name": {"notin": ["RTX 4090"]}}, False),
        ({"gpu_name": {"neq": "RTX 4090"}}, False),
        ({"num_gpus": {"eq": "1"}}, True),
        ({"gpu_ram": {"gte": "24000"}}, True),
        ({"gpu_ram": {"gt": 24564}}, False),
        ({"gpu_ram": {"lte": 24564}}, True),
        ({"gpu_ram": {"lt": 24564}}, False),
        ({"geolocation": {"eq": "SE"}}, True),
        ({"geolocation": {"in": ["US", "CA"]}}, False),
        ({"datacenter": {"eq": True}}, False),
        ({"driver_version": {"gte": 570086000}}, True),
        ({"driver_version": {"lt": "570086015"}}, False),
        ({"cuda_max_good": {"gte": 12.8}}, True),
        ({"external": False}, True),
        ({"static_ip": {"eq": "true"}}, True),
        ({"dph_total": {"lt": 0.1}}, False),
        ({"gpu_ram": {"gte": "many"}}, False),
    ],
)
def test_a_filter(market: Market, customer: Customer, query: dict[str, object], fits: bool) -> None:
    market.add_machine("RTX 4090")

    assert bool(customer.search(**query)) is fits


def test_the_id_finds_nothing_the_ask_contract_id_does(market: Market, customer: Customer) -> None:
    market.seed_offers(20)
    offer = next(iter(market.add_machine().offers.values()))

    assert customer.search(id={"eq": offer.id}) == []
    assert [o["id"] for o in customer.search(ask_contract_id={"eq": offer.id})] == [offer.id]


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ({"gpu_name": "RTX 4090"}, "bad_request", "q.gpu_name: Input should be a valid dictionary"),
        ({"gpu_ram": {"around": 24}}, "bad_request", "q.gpu_ram.around"),
        ({"allocated_storage": "much"}, "bad_request", "allocated_storage"),
        ({"type": "cheap"}, "invalid_args", "cheap"),
        ([1], "invalid_request", "Invalid json body"),
    ],
)
def test_a_query_that_is_refused(customer: Customer, body: object, error: str, words: str) -> None:
    reply = customer.http.post("/api/v0/bundles/", json=body)

    assert reply.status_code == 400
    assert reply.json()["error"] == error
    assert words in reply.json()["msg"]


def test_a_body_that_is_no_json(customer: Customer) -> None:
    reply = customer.http.post("/api/v0/bundles/", content=b"{")

    assert (reply.status_code, reply.json()) == (400, {"error": "invalid_request", "msg": "Invalid json body"})


def test_an_unknown_field_is_ignored_or_refused(market: Market, customer: Customer) -> None:
    market.add_machine()

    assert len(customer.search(flavour={"eq": "sweet"})) == 1
    market.unknown_field = "400"
    assert customer.http.post("/api/v0/bundles/", json={"flavour": {"eq": 1}}).status_code == 400


def test_sixty_four_whatever_is_asked_for_and_the_rest_by_price(market: Market, customer: Customer) -> None:
    market.seed_offers(150)
    query = {**ANY, "order": [["dph_total", "asc"]], "limit": 3000}
    seen: dict[int, float] = {}
    floor = 0.0
    for _ in range(10):
        page = customer.search(**query, dph_total={"gte": floor})
        assert len(page) <= 64
        if not page or all(o["id"] in seen for o in page):
            break
        seen |= {o["id"]: o["dph_total"] for o in page}
        floor = page[-1]["dph_total"]

    assert seen.keys() == market.offers.keys()
    assert list(seen.values()) == sorted(seen.values())


def test_several_orders(market: Market, customer: Customer) -> None:
    market.seed_offers(60)

    found = customer.search(**ANY, order=[["num_gpus", "desc"], ["dph_total", "asc"]])

    assert [(-o["num_gpus"], o["dph_total"]) for o in found] == sorted((-o["num_gpus"], o["dph_total"]) for o in found)


def test_the_price_holds_the_disk_that_was_asked_for(market: Market, customer: Customer) -> None:
    market.add_machine(dollars_per_gpu_hour=0.36, storage_dollars_per_gb_month=0.14933, min_bid_share=0.5)

    ten = customer.search(allocated_storage=10)[0]
    assert ten["storage_total_cost"] == pytest.approx(0.002074, abs=1e-6)
    assert ten["dph_total"] == pytest.approx(0.36 + 0.002074, abs=1e-6)
    default = customer.search()[0]
    assert default["dph_total"] - default["dph_base"] == pytest.approx(0.14933 * 8 / 720)
    bid = customer.search(type="bid", allocated_storage=10)[0]
    assert bid["is_bid"]
    assert bid["dph_total"] == pytest.approx(bid["min_bid"] + 0.002074, abs=1e-6)
    assert bid["min_bid"] == pytest.approx(0.18)


def test_searching_needs_no_key_but_a_wrong_one_is_refused(market: Market) -> None:
    market.add_machine()

    assert len(Customer(market, "").search()) == 1
    reply = Customer(market, "wrong" * 8).http.post("/api/v0/bundles/", json={})
    assert (reply.status_code, reply.json()["error"]) == (404, "auth_error")


def test_the_newer_search(market: Market, customer: Customer) -> None:
    market.add_machine()

    body = {"select_cols": ["*"], "q": {"gpu_name": {"eq": "RTX 4090"}}}
    assert len(customer.http.put("/api/v0/search/asks/", json=body).json()["offers"]) == 1


def test_slices_of_a_machine_exclude_each_other(market: Market, customer: Customer) -> None:
    machine = market.add_machine(num_gpus=4)
    sizes = {len(o.gpus): o for o in machine.offers.values()}
    assert sorted(sizes) == [1, 2, 4]

    single = customer.create(sizes[1])
    assert single.status_code == 200
    left = {len(o.gpus): o.id for o in machine.offers.values()}
    assert sorted(left) == [1, 2]
    assert sizes[4].id not in market.offers

    i = market.instances[single.json()["new_contract"]]
    customer.destroy(i)
    assert sorted(len(gpus) for gpus in machine.offers) == [1, 2, 4]


def test_the_market_moves_and_keeps_its_size(market: Market) -> None:
    market.seed_offers(80)
    before = {o.id: o.dph_base for o in market.offers.values()}
    motion.keep_moving(market, 60)

    market.advance(600)
    after = {o.id: o.dph_base for o in market.offers.values()}
    assert after.keys() - before.keys()
    assert before.keys() - after.keys()
    assert any(after[n] != before[n] for n in after.keys() & before.keys())
    market.advance(24 * 3600)
    assert 40 <= len(market.offers) <= 140


def test_public_tables(market: Market, customer: Customer) -> None:
    market.seed_offers(300)
    anybody = Customer(market, "")

    types = anybody.http.get("/api/v0/gpu_types/").json()["gpu_types"]
    assert {"canonical_name", "gpu_ram_mb"} <= types[0].keys()
    first = customer.http.get("/api/v0/benchmarks", params={"limit": 50}).json()
    assert len(first["benchmarks"]) == 50
    rest = customer.http.get("/api/v0/benchmarks", params={"limit": 50, "after_token": first["next_token"]}).json()
    assert not {b["id"] for b in first["benchmarks"]} & {b["id"] for b in rest["benchmarks"]}
