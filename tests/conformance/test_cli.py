"""The command `vastai`: what it prints and how it ends, in tables and with `--raw`."""

from __future__ import annotations

import json

import pytest

from tests.conformance.conftest import KEY
from tests.conformance.real import RealClient
from tests.conformance.test_sdk import IMAGE
from tests.fakes.vast.accounts import Account
from tests.fakes.vast.market import Market

pytestmark = pytest.mark.conformance


def test_search(real: RealClient) -> None:
    found = real.cli("search", "offers", "num_gpus=1 reliability>0.9", "-o", "dph", "--limit", "6", "--storage", "32")
    assert found.code == 0
    assert found.routes[-1] == "POST /api/v0/bundles/"
    assert found.sent["order"] == [["dph_total", "asc"]]
    assert 0 < len(found.value) <= 6
    table = real.cli("search", "offers", "num_gpus=1 reliability>0.9", "-o", "dph", "--limit", "6", raw=False)
    assert table.out.split()[:5] == ["#", "ID", "CUDA", "N", "Model"]
    assert str(found.value[0]["id"]) in table.out
    assert real.cli("search", "offers", "num_gpus=1", "--new", "--limit", "2").routes[-1] == "PUT /api/v0/search/asks/"


def test_life_of_an_instance(real: RealClient, market: Market) -> None:
    offer = real.cli("search", "offers", "num_gpus=1", "-o", "dph", "--limit", "1").value[0]["id"]
    words = ["--image", IMAGE, "--disk", "32", "--label", "cli:1", "--cancel-unavail", "--env", "-e A=b -p 8000:8000"]
    made = real.cli("create", "instance", str(offer), *words, "--args", "prove", "--all")
    assert made.code == 0
    assert made.sent["args"] == ["prove", "--all"]
    assert made.sent["env"] == {"A": "b", "-p 8000:8000": "1"}
    instance = str(made.value["new_contract"])

    shown = real.cli("show", "instance", instance)
    assert shown.value["label"] == "cli:1"
    market.advance(1800)
    [listed] = real.cli("show", "instances").value
    assert (str(listed["id"]), listed["actual_status"]) == (instance, "running")
    assert real.cli("show", "instances", "-q").out.split() == [instance]

    market.instances[int(instance)].log_source = lambda: b"first\nthe end\n"
    assert "the end" in real.cli("logs", instance, "--tail", "1", raw=False).out
    assert real.cli("logs", instance, "--daemon-logs", raw=False).out.strip()

    assert "label for" in real.cli("label", "instance", instance, "cli:2", raw=False).out
    assert "Rebooting" in real.cli("reboot", "instance", instance, raw=False).out

    assert real.cli("destroy", "instance", instance, "-y", raw=False).out.startswith("destroying instance")
    gone = real.cli("show", "instance", instance, raw=False)
    assert gone.code == 1
    assert "no longer exists" in gone.err
    assert real.cli("show", "instances").value == []


def test_tables(real: RealClient, market: Market, account: Account) -> None:
    """Every column that the command prints must have a value that its format takes."""
    ids = [str(market.add_instance(account, f"table:{n}", foreign=False).id) for n in range(3)]
    market.advance(1800)
    table = real.cli("show", "instances", "-v", raw=False)
    assert table.code == 0
    assert "Total: 3 instances" in table.out
    assert all(instance in table.out for instance in ids)
    assert "GET /api/v0/instances/filters/" in table.routes
    page = real.cli("show", "instances", "--limit", "2", "--label", "table:0", "table:1", "table:2")
    assert (len(page.value["instances"]), page.value["total_instances"]) == (2, 3)
    single = real.cli("show", "instance", ids[0], raw=False)
    assert ids[0] in single.out


def test_change_bid(real: RealClient) -> None:
    offer = real.cli("search", "offers", "num_gpus=1", "--type", "bid", "--limit", "1").value[0]
    price = str(round(offer["min_bid"] * 1.5, 3))
    made = real.cli("create", "instance", str(offer["id"]), "--image", IMAGE, "--bid_price", price, "--ssh", "--direct")
    assert made.sent["runtype"] == "ssh_direc ssh_proxy"
    instance = str(made.value["new_contract"])
    assert real.cli("show", "instance", instance).value["is_bid"] is True
    changed = real.cli("change", "bid", instance, "--price", price, raw=False)
    assert "bid price changed" in changed.out


def test_money(real: RealClient, market: Market, account: Account) -> None:
    user = real.cli("show", "user")
    assert user.value["credit"] == pytest.approx(25.0, abs=0.01)
    assert KEY not in user.out
    assert real.cli("show", "user", raw=False).out.split()[:2] == ["#", "Balance"]
    instance = market.add_instance(account, "bill", foreign=False).id
    market.advance(2 * 3600)
    real.sdk("destroy_instance", instance)
    market.advance(86400)
    days = ["-s", str(market.now_ms // 1000 - 5 * 86400), "-e", str(market.now_ms // 1000)]
    charges = real.cli("show", "invoices-v1", "--charges", *days)
    assert charges.routes[-1] == "GET /api/v0/charges/"
    assert any(row["source"] == f"instance-{instance}" for row in charges.value["results"])
    tree = real.cli("show", "invoices-v1", "--charges", "-f", "tree", "-v", *days, raw=False)
    assert str(instance) in tree.out
    table = real.cli("show", "invoices-v1", "--charges", *days, raw=False)
    assert str(instance) in table.out
    invoices = real.cli("show", "invoices-v1", "--invoices", *days, raw=False)
    assert invoices.code == 0
    assert real.cli("show", "deposit", str(instance), raw=False).code == 0


def test_refusals(real: RealClient) -> None:
    """Exit code 0 all the same: who scripts this command can't rely on it."""
    wrong = real.cli("show", "instances", key="0" * 64)
    assert wrong.code == 0
    assert json.loads(wrong.err) == {"error": True, "status_code": 404, "msg": "Invalid user key"}
    gone = real.cli("create", "instance", "999999999", "--image", IMAGE, raw=False)
    assert gone.code == 0
    assert gone.err.startswith("Failed with error ")
    assert "no_such_ask" in gone.err
