"""The Python SDK: `VastAI(...)` and `SyncClient` get from the fake what they get from Vast."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import KEY, STRANGERS_KEY
from tests.conformance.real import RealClient
from tests.fakes.vast.accounts import Account
from tests.fakes.vast.market import Market

pytestmark = pytest.mark.conformance

IMAGE = "registry.example/prover@sha256:" + "ab" * 32


def rented(real: RealClient, **fields: object) -> int:
    """The id of a new instance on the cheapest offer."""
    offer = real.sdk("search_offers", "", order="dph_total", limit=1).value[0]
    config = {"image": IMAGE, "disk": 32, "runtype": "args", "cancel_unavail": True, **fields}
    made = real.sdk("create_instance", offer["id"], **config).value
    assert made["success"] is True
    return int(made["new_contract"])


def running(real: RealClient, market: Market, **fields: object) -> int:
    instance = rented(real, **fields)
    market.advance(1800)
    assert real.sdk("show_instance", instance).value["actual_status"] == "running"
    return instance


class TestSearch:
    def test_by_string(self, real: RealClient) -> None:
        """The string's values go out as strings ("1", "24000"), the GPU's name with spaces."""
        found = real.sdk("search_offers", "num_gpus=1 gpu_ram>=20 dph_total<2.5", order="dph_total")
        assert found.routes == ["POST /api/v0/bundles/"]
        assert found.sent["gpu_ram"]["gte"] == 20_000.0
        assert found.value
        prices = [offer["dph_total"] for offer in found.value]
        assert prices == sorted(prices)
        assert all(o["num_gpus"] == 1 and o["gpu_ram"] >= 20_000 and o["dph_total"] < 2.5 for o in found.value)
        name = found.value[0]["gpu_name"]
        again = real.sdk("search_offers", "gpu_name=" + name.replace(" ", "_"))
        assert again.sent["gpu_name"] == {"eq": name}
        assert {offer["gpu_name"] for offer in again.value} == {name}

    def test_by_dict(self, real: RealClient) -> None:
        query = {"num_gpus": {"in": [1, 2]}, "reliability2": {"gte": 0.9}, "rented": {"eq": False}}
        found = real.sdk("search_offers", query, limit=7).value
        assert 0 < len(found) <= 7
        assert all(offer["num_gpus"] in (1, 2) and offer["reliability2"] >= 0.9 for offer in found)
        assert real.sdk("search_offers", {"id": {"eq": found[0]["id"]}}).value == []
        again = real.sdk("search_offers", {"ask_contract_id": {"eq": found[0]["id"]}}).value
        assert [offer["id"] for offer in again] == [found[0]["id"]]

    def test_storage_is_in_the_price(self, real: RealClient) -> None:
        small = real.sdk("search_offers", "", storage=8.0, order="dph_total", limit=1).value[0]
        large = real.sdk("search_offers", {"ask_contract_id": {"eq": small["id"]}}, storage=108.0).value[0]
        assert large["dph_total"] - small["dph_total"] == pytest.approx(100 * small["storage_cost"] / 720, abs=1e-9)

    def test_interruptible(self, real: RealClient) -> None:
        found = real.sdk("search_offers", "", type="interruptible", limit=3)
        assert found.sent["type"] == "bid"
        assert all(offer["min_bid"] > 0 for offer in found.value)

    def test_newer_route(self, real: RealClient) -> None:
        found = real.sdk("search_offers_new", "num_gpus=2", limit=4)
        assert found.routes == ["PUT /api/v0/search/asks/"]
        assert {offer["num_gpus"] for offer in found.value} == {2}

    def test_64_at_most(self, real: RealClient, market: Market) -> None:
        market.seed_offers(200)
        assert len(real.sdk("search_offers", "verified=any", limit=1000).value) == 64

    def test_sync_client(self, real: RealClient) -> None:
        query = {"verified": {"eq": True}, "rentable": {"eq": True}, "rented": {"eq": False}, "num_gpus": {"eq": 1}}
        found = real.sdk("search", on="SyncClient", query=query, type_="on-demand", limit=5, allocated_storage=32.0)
        assert found.value
        assert all(offer["num_gpus"] == 1 and offer["dph_total"] > 0 for offer in found.value)


class TestLife:
    def test_from_create_to_destroy(self, real: RealClient, market: Market) -> None:
        instance = rented(real, label="ours:1", env={"A": "b", "-p 8000:8000": "1"})
        shown = real.sdk("show_instance", instance)
        assert shown.routes == [f"GET /api/v0/instances/{instance}/"]
        assert shown.value["label"] == "ours:1"
        assert shown.value["is_bid"] is False
        assert shown.value["image_uuid"] == IMAGE
        assert shown.value["extra_env"]["A"] == "b"
        market.advance(1800)
        now = real.sdk("show_instance", instance).value
        assert (now["actual_status"], now["intended_status"], now["cur_state"]) == ("running", "running", "running")
        assert all(mapped[0]["HostPort"].isdigit() for mapped in now["ports"].values())

        assert real.sdk("label_instance", instance, "ours:2").value["success"] is True
        assert real.sdk("reboot_instance", instance).value["success"] is True
        market.advance(1800)
        assert real.sdk("show_instance", instance).value["label"] == "ours:2"

        assert real.sdk("destroy_instance", instance).value["success"] is True
        assert real.sdk("show_instance", instance).value is None
        assert real.sdk("show_instances").value == []

    def test_logs(self, real: RealClient, market: Market) -> None:
        """The answer is an address; the client asks there, without its key, until it is not refused any more."""
        instance = running(real, market)
        market.instances[instance].log_source = lambda: b"line one\nline two\nthe end\n"
        log = real.sdk("logs", instance, tail="2")
        assert log.value.splitlines()[-1] == "the end"
        assert len(log.value.splitlines()) == 2
        assert log.routes[0] == f"PUT /api/v0/instances/request_logs/{instance}/"
        assert log.routes[-1].startswith("GET /")
        assert [e.status for e in log.exchanges][-1] == 200
        assert "the end" in real.sdk("logs", instance, filter="end").value
        assert real.sdk("logs", instance, daemon_logs=True).value

    def test_bid(self, real: RealClient, market: Market) -> None:
        offer = real.sdk("search_offers", "", type="bid", order="min_bid", limit=1).value[0]
        made = real.sdk("create_instance", offer["id"], image=IMAGE, bid_price=offer["min_bid"] * 1.5, runtype="args")
        instance = made.value["new_contract"]
        assert real.sdk("show_instance", instance).value["is_bid"] is True
        market.advance(1800)
        changed = real.sdk("change_bid", instance, price=round(offer["min_bid"] * 2, 3))
        assert changed.routes == [f"PUT /api/v0/instances/bid_price/{instance}/"]
        assert changed.value["success"] is True

    def test_no_price_is_no_bid(self, real: RealClient) -> None:
        """The trap of vast-cli #403: an offer found as interruptible, created without a price, is on demand."""
        offer = real.sdk("search_offers", "", type="bid", limit=1).value[0]
        instance = real.sdk("create_instance", offer["id"], image=IMAGE, runtype="args").value["new_contract"]
        shown = real.sdk("show_instance", instance).value
        assert shown["is_bid"] is False
        assert shown["dph_total"] > offer["min_bid"]

    def test_many_pages(self, real: RealClient, market: Market, account: Account) -> None:
        for number in range(53):
            market.add_instance(account, f"fleet:{number % 2}", foreign=False)
        listed = real.sdk("show_instances")
        assert listed.routes == ["GET /api/v1/instances/"] * 3
        assert len({row["id"] for row in listed.value}) == 53
        page = real.sdk("show_instances_v1", {"select_filters": {"label": {"eq": "fleet:1"}}, "limit": 5}).value
        assert (page["instances_found"], page["total_instances"], len(page["instances"])) == (5, 26, 5)
        assert page["label_counts"]["fleet:1"] == 26
        assert page["next_token"]

    def test_filters(self, real: RealClient, market: Market) -> None:
        running(real, market)
        [found] = real.sdk("show_instance_filters").value
        assert found["actual_status"] == "running"
        assert found["gpu_name"]

    def test_bulk(self, real: RealClient) -> None:
        offers = real.sdk("search_offers", "num_gpus=1", order="dph_total").value
        first = offers[0]
        second = next(offer for offer in offers if offer["machine_id"] != first["machine_id"])
        made = real.sdk("create_instance", [first["id"], second["id"]], image=IMAGE, runtype="args")
        assert made.routes == ["POST /api/v0/asks/bulk/"]
        ids = [row["id"] for row in real.sdk("show_instances").value]
        assert len(ids) == 2
        gone = real.sdk("destroy_instance", ids)
        assert gone.routes == ["DELETE /api/v0/instances/"]
        assert gone.sent == {"instance_ids": ids}
        assert real.sdk("show_instances").value == []

    def test_stop_and_start(self, real: RealClient, market: Market) -> None:
        instance = running(real, market)
        assert real.sdk("stop_instance", instance).value["success"] is True
        market.advance(60)
        assert real.sdk("show_instance", instance).value["cur_state"] == "stopped"
        assert real.sdk("start_instance", instance).value["success"] is True
        market.advance(600)
        assert real.sdk("show_instance", instance).value["actual_status"] == "running"

    def test_ssh_url(self, real: RealClient, market: Market) -> None:
        instance = running(real, market, runtype="ssh_direc ssh_proxy")
        shown = real.sdk("show_instance", instance).value
        assert real.sdk("ssh_url", instance).value == f"ssh://root@{shown['ssh_host']}:{shown['ssh_port']}"
        assert shown["ports"]["22/tcp"][0]["HostPort"] != str(shown["ssh_port"])

    def test_launch(self, real: RealClient) -> None:
        """Search and create in one call."""
        name = real.sdk("search_offers", "num_gpus=1", limit=1).value[0]["gpu_name"].replace(" ", "_")
        made = real.sdk("launch_instance", name, "1", IMAGE, runtype="args")
        assert made.routes == ["PUT /api/v0/launch_instance/"]
        assert made.value["success"] is True
        assert real.sdk("show_instance", made.value["new_contract"]).value["gpu_name"] == name.replace("_", " ")

    def test_sync_client(self, real: RealClient, market: Market) -> None:
        offer = real.sdk("search_offers", "", limit=1).value[0]
        config = {"image": IMAGE, "disk": 20.0, "label": "sync", "runtype": "args", "env": {"A": "b"}}
        made = real.sdk("create_instance", offer["id"], on="SyncClient", config=config)
        assert made.value["machine_id"] == offer["machine_id"]
        assert made.value["label"] == "sync"
        assert real.sdk("destroy_instance", made.value["id"], on="SyncClient").error == {}
        assert real.sdk("show_instances", on="SyncClient").value == []


class TestMoney:
    def test_user(self, real: RealClient) -> None:
        user = real.sdk("show_user")
        assert user.value["credit"] == pytest.approx(25.0, abs=0.01)
        assert "api_key" not in user.value
        assert user.exchanges[-1].answered["api_key"] == KEY

    def test_charges(self, real: RealClient, market: Market) -> None:
        instance = running(real, market, label="ours:bill")
        market.advance(3600)
        real.sdk("destroy_instance", instance)
        market.advance(3 * 86400)
        now_s = market.now_ms // 1000
        params = {"charges": True, "start_date": now_s - 6 * 86400, "end_date": now_s, "charge_type": ["instance"]}
        found = real.sdk("show_invoices_v1", **params)
        assert found.routes == ["GET /api/v0/charges/"]
        rows = [row for row in found.value["results"] if row["source"] == f"instance-{instance}"]
        assert rows
        assert {row["metadata"]["label"] for row in rows} == {"ours:bill"}
        assert sum(row["amount"] for row in rows) == pytest.approx(market.bill(instance), abs=0.01)
        kinds = {item["type"] for row in rows for item in row["items"]}
        assert {"gpu", "disk"} <= kinds <= {"gpu", "disk", "bwd", "bwu"}

    def test_invoices(self, real: RealClient) -> None:
        found = real.sdk("show_invoices_v1", charges=False, limit=5)
        assert found.routes == ["GET /api/v1/invoices/"]
        assert {"results", "count", "total", "next_token"} <= found.value.keys()

    def test_deposit(self, real: RealClient) -> None:
        instance = rented(real)
        assert isinstance(real.sdk("show_deposit", instance).value, dict)


class TestRefusals:
    def test_wrong_key_is_a_404(self, real: RealClient) -> None:
        """Which a client may take for "no such instance", and must not."""
        wrong = real.sdk("show_instances", key="0" * 64).error
        assert (wrong["type"], wrong["status"]) == ("HTTPError", 404)
        assert '"auth_error"' in wrong["body"]

    def test_no_credit(self, real: RealClient, market: Market) -> None:
        market.add_account(STRANGERS_KEY, credit=0.0)
        offer = real.sdk("search_offers", "", limit=1).value[0]
        refused = real.sdk("create_instance", offer["id"], image=IMAGE, key=STRANGERS_KEY).error
        assert refused["status"] == 400
        assert "insufficient_credit" in refused["body"]
        assert "insufficient_credit" not in refused["text"]

    def test_offer_gone(self, real: RealClient) -> None:
        offer = real.sdk("search_offers", "", limit=1).value[0]
        real.sdk("create_instance", offer["id"], image=IMAGE, runtype="args")
        gone = real.sdk("create_instance", offer["id"], image=IMAGE, runtype="args").error
        assert gone["status"] in (400, 404, 410)
        assert "no_such_ask" in gone["body"]

    def test_each_account_sees_its_own(self, real: RealClient, market: Market) -> None:
        market.add_account(STRANGERS_KEY, credit=10.0)
        instance = rented(real)
        assert real.sdk("show_instances", key=STRANGERS_KEY).value == []
        assert real.sdk("destroy_instance", instance, key=STRANGERS_KEY).error["status"] in (403, 404)
        assert len(real.sdk("show_instances").value) == 1
