"""Each nasty case by its name does what the reference says of it."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from itertools import pairwise

import httpx
import pytest

from tests.fakes.conftest import IMAGE, KEY, Customer
from tests.fakes.vast import scenarios
from tests.fakes.vast.market import Market


def armed(market: Market, name: str, **options: object) -> None:
    """The case, and an offer for it."""
    market.add_machine()
    market.scenario(name, **options)


def statuses(market: Market, customer: Customer, number: int, seconds: int, step: int = 1) -> list[tuple[int, object]]:
    """When the status changed, and to what."""
    seen: list[tuple[int, object]] = []
    for second in range(0, seconds, step):
        row = customer.show(number)
        status = row and row["actual_status"]
        if not seen or seen[-1][1] != status:
            seen.append((second, status))
        market.advance(step)
    return seen


def test_there_are_all_of_them(market: Market) -> None:
    assert list(scenarios.CASES) == [f"N{n}" for n in range(1, 36)]
    for name in scenarios.names():
        fresh = Market()
        fresh.add_account(KEY)
        fresh.seed_offers(3)
        fresh.scenario(name)
    for wrong in ("N0", "N36", "N8:loud", "N25:sideways"):
        with pytest.raises(ValueError, match=wrong.partition(":")[0]):
            market.scenario(wrong)


@pytest.mark.parametrize(("name", "status"), [("N1", None), ("N2", 504), ("N4", 200), ("N4:applied", 200), ("N5", 200)])
def test_creates_that_break(market: Market, customer: Customer, name: str, status: int | None) -> None:
    armed(market, name)
    offer = next(iter(market.offers))

    if status is None:
        with pytest.raises(httpx.ReadError):
            customer.create(offer, label="app:1")
    else:
        reply = customer.create(offer, label="app:1")
        assert reply.status_code == status
        assert name == "N2" or "new_contract" not in reply.json()

    assert bool(market.live("app:1")) is (name != "N4")


def test_n3_both_accepted_and_one_never_starts(market: Market, customer: Customer) -> None:
    armed(market, "N3")
    offer = next(iter(market.offers))
    first, second = (customer.create(offer, label=name).json()["new_contract"] for name in "ab")
    market.advance(3600)

    assert customer.show(first)["actual_status"] == "running"
    row = customer.show(second)
    assert (row["actual_status"], "port is already allocated" in row["status_msg"]) == ("created", True)


@pytest.mark.parametrize(("name", "shown", "listed"), [("N6", False, True), ("N7", True, False)])
def test_reads_that_lag(market: Market, customer: Customer, name: str, shown: bool, listed: bool) -> None:
    armed(market, name)
    number = customer.create(next(iter(market.offers))).json()["new_contract"]
    market.advance(29)

    assert (customer.show(number) is not None) is shown
    assert bool(customer.page()["instances"]) is listed
    market.advance(2)
    assert customer.show(number) is not None
    assert customer.page()["total_instances"] == 1


def texts(market: Market, customer: Customer, name: str, minutes: int) -> list[str | None]:
    """What the status message says, once a minute."""
    armed(market, name)
    number = customer.create(next(iter(market.offers))).json()["new_contract"]
    seen = []
    for _ in range(minutes):
        market.advance(60)
        seen.append(customer.show(number)["status_msg"])
    assert customer.show(number)["actual_status"] != "running" or name == "N9"
    return seen


def test_n8_n9_n10_loading(market: Market, customer: Customer) -> None:
    assert len(set(texts(market, customer, "N8", 60))) == 1

    slow = texts(market, customer, "N9", 42)
    assert all(a != b for a, b in pairwise(slow[:40])), "another text every minute"
    assert slow[-1].startswith("success, running")

    stuck = texts(market, customer, "N10", 60)
    assert set(stuck[1:]) == {"47b8539d532f: Extracting"}


def test_n11_no_manifest(market: Market, customer: Customer) -> None:
    armed(market, "N11")
    number = customer.create(next(iter(market.offers))).json()["new_contract"]
    market.advance(7 * 60)
    row = customer.show(number)
    assert (row["actual_status"], row["intended_status"]) == ("loading", "running")
    assert f"manifest for {IMAGE} not found" in row["status_msg"]

    market.advance(30)
    row = customer.show(number)
    assert (row["actual_status"], row["intended_status"]) == ("loading", "stopped")


def test_n12_oci_error(market: Market, customer: Customer) -> None:
    assert "OCI runtime create failed:" in str(texts(market, customer, "N12", 10)[-1])


def test_n13_ports(market: Market, customer: Customer) -> None:
    for name, there in (("N13:late", True), ("N13:never", False)):
        armed(market, name)
        number = customer.create(next(iter(market.offers))).json()["new_contract"]
        market.advance(40)
        row = customer.show(number)
        assert (row["actual_status"], row["ports"]) == ("running", {})
        market.advance(30)
        assert bool(customer.show(number)["ports"]) is there


def test_n14_n15_what_the_row_does_not_show(market: Market, customer: Customer) -> None:
    made = []
    for name in ("N14:direct_dead", "N14:proxy_dead", "N15:smi", "N15:gpu", "N15:vram"):
        armed(market, name)
        made.append(market.instances[customer.create(next(iter(market.offers))).json()["new_contract"]])
        market.advance(60)

    direct, proxy, smi, gpu, vram = made
    assert (direct.ssh_direct_up, direct.ssh_proxy_up) == (False, True)
    assert (proxy.ssh_direct_up, proxy.ssh_proxy_up) == (True, False)
    assert "NVIDIA-SMI has failed" in str(smi.log)
    assert gpu.truth["gpu_name"] != customer.show(gpu)["gpu_name"]
    assert vram.truth["gpu_ram"] < customer.show(vram)["gpu_ram"]


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("N16", ["running", "exited"]),
        ("N17", ["running", "exited", "running"]),
        ("N18", ["running", "unknown", "running"]),
        ("N33", ["running", "hibernating", "running"]),
    ],
)
def test_lives_that_change(market: Market, customer: Customer, name: str, after: list[str]) -> None:
    armed(market, name)
    number = customer.create(next(iter(market.offers))).json()["new_contract"]
    seen = statuses(market, customer, number, 400, 2)

    assert [status for _, status in seen][3:] == after
    assert customer.show(number)["intended_status"] == "running"
    if name == "N16":
        assert market.instances[number].exit_code == 137
    if name == "N17":
        assert seen[5][0] - seen[4][0] == 10


def test_n19_offline_for_an_hour_and_billed_again(market: Market, customer: Customer) -> None:
    armed(market, "N19")
    number = customer.create(next(iter(market.offers))).json()["new_contract"]
    market.advance(200)
    assert customer.show(number)["actual_status"] == "offline"
    before = market.bill(number)
    market.advance(3000)
    assert market.bill(number) == before
    market.advance(1000)
    assert customer.show(number)["actual_status"] == "running"
    assert market.bill(number) > before


def test_n20_outbid_and_back(market: Market, customer: Customer) -> None:
    armed(market, "N20")
    number = customer.create(next(iter(market.offers)), price=0.3).json()["new_contract"]
    for _ in range(200):
        market.advance(1)
        row = customer.show(number)
        if row["cur_state"] == "stopped":
            break
    assert (row["intended_status"], row["next_state"], row["actual_status"]) == ("stopped", "stopped", "running")
    market.advance(290)
    assert customer.show(number)["actual_status"] == "exited"
    market.advance(20)
    assert customer.show(number)["actual_status"] == "running"


def test_n21_credit_gone(market: Market, customer: Customer) -> None:
    two = [customer.rented() for _ in range(2)]
    market.scenario("N21")
    market.advance(1)

    assert {i.cur for i in two} == {"stopped"}
    assert customer.create(next(iter(market.add_machine().offers.values()))).json()["error"] == "insufficient_credit"


def test_n22_the_end_date_passes(market: Market, customer: Customer) -> None:
    armed(market, "N22")
    number = customer.create(next(iter(market.offers))).json()["new_contract"]
    assert customer.show(number)["end_date"] == pytest.approx(market.now_ms / 1000 + 600)
    market.advance(610)
    assert customer.show(number)["cur_state"] == "stopped"


@pytest.mark.parametrize(
    ("name", "statuses"),
    [
        ("N23", [500, 500, 500, 200]),
        ("N23:429", [429, 429, 429, 200]),
        ("N23:success_false", [200, 200, 200, 200]),
        ("N24", [404, 404, 404, 200]),
    ],
)
def test_destroys_that_take_several_calls(market: Market, customer: Customer, name: str, statuses: list[int]) -> None:
    i = customer.rented()
    market.scenario(name)
    replies = []
    for _ in statuses:
        assert i.live
        replies.append(customer.destroy(i))

    assert [reply.status_code for reply in replies] == statuses
    assert not i.live
    if name == "N24":
        assert replies[0].json()["error"] == "auth_error"


def test_n23_applied_without_an_answer_and_back_again(market: Market, customer: Customer) -> None:
    i = customer.rented()
    market.scenario("N23:timeout")
    with pytest.raises(httpx.ReadTimeout):
        customer.destroy(i)
    assert not i.live

    i = customer.rented()
    market.scenario("N23:reappears")
    assert customer.destroy(i).json() == {"success": True}
    assert customer.show(i) is None
    assert customer.page()["instances"] == []
    market.advance(21)
    assert customer.show(i)["actual_status"] == "running"
    assert market.bill(i.id) > 0
    customer.destroy(i)
    market.advance(60)
    assert customer.show(i) is None


@pytest.mark.parametrize("variant", scenarios.VARIANTS["N25"])
def test_n25_logs(market: Market, customer: Customer, variant: str) -> None:
    i = customer.rented()
    market.scenario("N25", variant)
    url = customer.logs(i)

    def get() -> httpx.Response:
        return customer.store.get(url, headers={"Range": "bytes=-2000"} if variant == "huge" else {})

    market.advance(5)
    early = get()
    market.advance(300)
    late = get()
    match variant:
        case "late":
            assert (early.status_code, late.status_code) == (403, 200)
        case "never":
            assert late.status_code == 403
        case "stale":
            assert "yesterday" in early.text
            assert "yesterday" not in late.text
        case "truncated":
            assert not late.content.endswith(b"\n")
        case "huge":
            assert int(late.headers["content-range"].split("/")[1]) == 300 << 20
        case "invalid_utf8":
            with pytest.raises(UnicodeDecodeError):
                late.content.decode()
        case "progress":
            assert late.content.count(b"\r") > 100
        case "secret":
            assert i.env["CONTAINER_API_KEY"] in late.text


def test_n26_too_late_for_logs(market: Market, customer: Customer) -> None:
    i = customer.rented()
    market.scenario("N26")

    reply = customer.http.put(f"/api/v0/instances/request_logs/{i.id}/", json={})
    assert (reply.status_code, reply.json()["error"]) == (404, "invalid_id")


def test_n27_lists(market: Market, customer: Customer) -> None:
    market.scenario("N27:26")
    assert customer.page()["total_instances"] == 26
    market.scenario("N27:51")
    assert customer.page()["total_instances"] == 51

    market.scenario("N27:page2")
    token = customer.page()["next_token"]
    reply = customer.http.get("/api/v1/instances/", params={"after_token": token})
    assert reply.status_code == 500

    market.scenario("N27:total")
    assert customer.page()["total_instances"] == 99

    market.scenario("N27:nulls")
    row = customer.page()["instances"][0]
    assert (row["start_date"], row["extra_env"], row["ports"]) == (None, None, None)

    market.scenario("N27:repeats")
    tokens = {customer.page()["next_token"]}
    tokens |= {customer.page(after_token=token)["next_token"] for _ in range(4)}
    assert len(tokens) == 1


def test_n28_n35_strangers(market: Market, customer: Customer) -> None:
    strangers = market.scenario("N28", prefix="provefleet:abc:")
    found = market.scenario("N35", labels=("provefleet:abc:1",))

    labels = [i.label for i in strangers]
    assert {None, "", "provefleet:abc:"} <= set(labels)
    assert sum("provefleet:abc" in (label or "") for label in labels) >= 5
    assert all(i.foreign for i in strangers)
    assert [i.label for i in found if not i.foreign] == ["provefleet:abc:1"]
    assert customer.page()["total_instances"] == len(strangers) + len(found)


@pytest.mark.parametrize(("name", "status"), [("N29:html", 200), ("N29:empty", 200), ("N29:redirect", 308)])
def test_n29_no_answer_of_the_api(market: Market, customer: Customer, name: str, status: int) -> None:
    market.scenario(name)
    reply = customer.http.get("/api/v1/instances/")

    assert reply.status_code == status
    with pytest.raises(ValueError, match="Expecting value"):
        reply.json()


def test_n30_searches_that_lie(market: Market, customer: Customer) -> None:
    market.seed_offers(60)
    query = {"gpu_ram": {"gte": 40_000}, "order": [["dph_total", "asc"]]}
    honest = customer.search(**query)

    market.scenario("N30:price")
    before = customer.search(**query)
    assert before == honest
    i = market.instances[customer.create(before[0]["id"], disk=10).json()["new_contract"]]
    assert i.dph_base == pytest.approx(before[0]["dph_base"] * 1.5)

    market.scenario("N30:nulls")
    assert any(row[name] is None for row in customer.search() for name in ("dph_total", "machine_id", "gpu_ram"))
    market.scenario("N30:violates")
    assert any((row["gpu_ram"] or 0) < 40_000 for row in customer.search(**query))
    market.scenario("N30:zero")
    assert customer.search() == []


def test_n31_quota(market: Market, customer: Customer) -> None:
    market.scenario("N31")

    assert customer.http.post("/api/v0/bundles/", json={}).json()["error"] == "search_quota_exceeded"


def test_n32_another_time(market: Market, customer: Customer) -> None:
    market.scenario("N32")
    i = customer.rented()

    assert customer.show(i)["start_date"] == pytest.approx(i.created_ms / 1000 - 420)
    date = parsedate_to_datetime(customer.http.get("/api/v1/instances/").headers["date"])
    assert date.timestamp() == market.now_ms // 1000 - 420


def test_n34_keys_nobody_knows(market: Market, customer: Customer) -> None:
    market.scenario("N34")
    i = customer.rented()

    assert "zz_unheard" in customer.page()
    assert "zz_unheard" in customer.page()["instances"][0]
    assert "zz_unheard" in customer.show(i)
    market.add_machine()
    assert customer.search()[0]["is_quantum"] is True
