"""The list: when it is one of everything, and what a row means."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from jobs.market.providers import base
from jobs.market.providers.base import ProviderInstance, ProviderUnavailable
from tests.fakes.vast.market import Market
from tests.jobs.market.wire import KEY, T0_MS, Wire, as_json, no, ok, on_market, page

ROW: dict[str, Any] = {
    "id": 11, "label": "provefleet:c:i", "actual_status": "running", "intended_status": "running",
    "cur_state": "running", "next_state": "running", "status_msg": "success, running", "machine_id": 501,
    "host_id": 77, "dph_total": 0.45, "is_bid": False,
}  # fmt: skip


def read(**fields: Any) -> ProviderInstance:
    """The row as we read it; no second call is answered."""
    wire = Wire(page({**ROW, **fields}), ok(credit=5.0))
    (instance,) = wire.provider().list().instances
    return instance


# Whole, or not.


def test_pages_are_walked_to_the_end() -> None:
    rows = [{**ROW, "id": n} for n in range(1, 61)]
    wire = Wire(
        page(*rows[:25], total=60, token="a"), page(*rows[25:50], total=60, token="b"), page(*rows[50:], total=60)
    )
    listing = wire.provider().list()
    assert listing.complete
    assert [int(i.provider_id) for i in listing.instances] == list(range(1, 61))
    assert [r.url.params.get("after_token") for r in wire.requests] == [None, "a", "b"]
    assert all(r.url.params["limit"] == "25" for r in wire.requests)
    assert all(b - a >= 1000 for a, b in zip(wire.times_ms, wire.times_ms[1:], strict=False))


def test_nothing_rented_is_complete() -> None:
    assert Wire(page()).provider().list() == base.Listing(True, [])


ODD: dict[str, list[httpx.Response]] = {
    "fewer rows than it says": [page(ROW, total=2)],
    "more rows than it says": [page(ROW, {**ROW, "id": 12}, total=1)],
    "no total": [as_json(200, {"success": True, "instances": [ROW], "next_token": None})],
    "a total that is no number": [ok(instances=[ROW], total_instances="many", next_token=None)],
    "a token again": [page(ROW, total=9, token="a"), page({**ROW, "id": 12}, total=9, token="a")],
    "a token that is no text": [page(ROW, total=1, token={"a": 1})],  # type: ignore[arg-type]
    "an empty page that goes on": [page(ROW, total=1, token="a"), page(total=1, token="b")],
    "another total on the next page": [page(ROW, total=2, token="a"), page({**ROW, "id": 12}, total=3)],
    "a row twice": [page(ROW, total=2, token="a"), page(ROW, total=2)],
    "a row twice that the total leaves out": [page(ROW, total=1, token="a"), page(ROW, total=1)],
    "a row without a number": [page(ROW, {**ROW, "id": None}, total=2)],
    "a row without a number that the total leaves out": [page(ROW, {**ROW, "id": None}, total=1)],
    "a row that is none": [page(ROW, "gone", total=2)],  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ODD)
def test_a_list_that_does_not_add_up_is_not_complete(name: str, caplog: pytest.LogCaptureFixture) -> None:
    listing = Wire(*ODD[name]).provider().list()
    assert not listing.complete
    assert "11" in [i.provider_id for i in listing.instances], "what it shows is there all the same"
    assert "not complete" in caplog.text


def test_a_token_that_comes_again_is_not_followed() -> None:
    wire = Wire(*ODD["a token again"])
    wire.provider().list()
    assert len(wire.requests) == 2


def test_a_list_without_end_ends() -> None:
    wire = Wire(page())
    wire.replies = [lambda r: page({**ROW, "id": len(wire.requests)}, total=9999, token=f"t{len(wire.requests)}")]
    assert not wire.provider().list().complete
    assert len(wire.requests) == 400


NO_LIST = [
    no(200, "internal", "try again"),
    no(410, "deprecated_endpoint", "/api/v0/instances/ is deprecated."),
    no(400, "invalid_token"),
    ok(),
    ok(instances=None),
    ok(instances={"11": ROW}),
    as_json(200, []),
    httpx.Response(200, text=""),
    httpx.Response(200, text="<html>maintenance</html>"),
]


@pytest.mark.parametrize("answer", NO_LIST)
@pytest.mark.parametrize("first", [True, False])
def test_what_is_no_list_is_never_an_empty_one(answer: httpx.Response, first: bool) -> None:
    wire = Wire(answer) if first else Wire(page(ROW, total=2, token="a"), answer)
    with pytest.raises(ProviderUnavailable):
        wire.provider().list()


# A row.


def test_a_row_of_nulls_is_read() -> None:
    instance = read(**dict.fromkeys(ROW) | {"id": 11, "extra_env": None, "start_date": None, "ports": None})
    assert instance == ProviderInstance("11", "", base.LOADING, "", 0.0, facts={"ports": {}})


def test_secrets_of_a_row_stay_where_they_are() -> None:
    instance = read(
        extra_env=[["PROVEFLEET_BOOTSTRAP_TOKEN", "s3cret"]], onstart="s3cret", jupyter_token="s3cret", api_key="s3cret"
    )
    assert "s3cret" not in repr(instance)


STATES: list[tuple[dict[str, Any], str]] = [
    ({"actual_status": None}, base.LOADING),
    ({"actual_status": "created"}, base.LOADING),
    ({"actual_status": "loading"}, base.LOADING),
    ({"actual_status": "rebooting"}, base.LOADING),
    ({"actual_status": "running"}, base.RUNNING),
    ({"actual_status": "exited"}, base.EXITED),
    ({"actual_status": "stopped"}, base.STOPPED),
    ({"actual_status": "frozen"}, base.STOPPED),
    ({"actual_status": "unknown"}, base.UNKNOWN),
    ({"actual_status": "offline"}, base.OFFLINE),
    ({"actual_status": "hibernating"}, base.UNKNOWN),
    ({"actual_status": 7}, base.UNKNOWN),
    # The contract's states go before a status that stays as it was.
    ({"cur_state": "stopped", "intended_status": "stopped", "next_state": "stopped"}, base.STOPPED),
    ({"cur_state": "stopped", "intended_status": "stopped", "next_state": None}, base.STOPPED),
    ({"actual_status": "loading", "cur_state": "stopped", "intended_status": "stopped"}, base.LOADING),
    ({"cur_state": "stopped", "intended_status": "running", "next_state": "running"}, base.RUNNING),
    (
        {"actual_status": "offline", "cur_state": "stopped", "intended_status": "stopped", "next_state": "stopped"},
        base.OFFLINE,
    ),
]


@pytest.mark.parametrize(("fields", "status"), STATES)
def test_states(fields: dict[str, Any], status: str) -> None:
    assert read(**fields).status == status


STOPPED = {"cur_state": "stopped", "intended_status": "stopped", "next_state": "stopped"}
WHY: list[tuple[dict[str, Any], float | None, str]] = [
    ({"is_bid": True}, 5.0, "outbid"),
    ({"is_bid": False}, 5.0, "stopped"),
    ({"is_bid": None}, 5.0, "stopped"),
    ({"is_bid": True}, 0.0, "no_credit"),
    ({"is_bid": True}, -1.5, "no_credit"),
    ({"is_bid": False}, 0.001, "no_credit"),
    ({"is_bid": True}, None, "outbid"),  # the account can't be read
    ({"is_bid": True, "end_date": T0_MS / 1000 - 1}, 5.0, "expired"),
    ({"is_bid": True, "end_date": T0_MS / 1000 - 1}, 0.0, "expired"),
    ({"is_bid": True, "end_date": T0_MS / 1000 + 60}, 5.0, "outbid"),
]


@pytest.mark.parametrize(("fields", "credit", "why"), WHY)
def test_why_it_was_stopped(fields: dict[str, Any], credit: float | None, why: str) -> None:
    wire = Wire(page({**ROW, **STOPPED, **fields}), no(400, "sorry") if credit is None else ok(credit=credit))
    (instance,) = wire.provider().list().instances
    assert (instance.status, instance.stopped_why) == (base.STOPPED, why)


def test_the_account_is_asked_only_when_something_stopped() -> None:
    wire = Wire(page(ROW))
    wire.provider().list()
    assert len(wire.requests) == 1


HOPELESS = [
    "Error response from daemon: manifest for a/b@sha256:00 not found: manifest unknown",
    "pull access denied for a/b, repository does not exist or may require 'docker login'",
    "Error: unauthorized: authentication required",
    "failed to resolve reference docker.io/a/b",
    "docker: Error response from daemon: OCI runtime create failed: runc create failed",
    "Bind for 0.0.0.0:20022 failed: port is already allocated",
    "write /var/lib/docker/tmp/x: no space left on device",
    "Unable to find image 'a/b'",
    "unexpected fault address 0x7f",
]


@pytest.mark.parametrize("message", HOPELESS)
@pytest.mark.parametrize("status", [None, "created", "loading", "exited"])
def test_a_boot_that_no_waiting_mends(message: str, status: str | None) -> None:
    assert read(actual_status=status, status_msg=message).boot_failed == message


HOPEFUL = [
    "3c645031de29: Downloading",
    "Unable to find image 'a/b@sha256:00' locally",
    "7a1: Retrying in 5 seconds",
    "Error downloading layer, retrying",
    "",
]


@pytest.mark.parametrize("message", HOPEFUL)
def test_a_boot_that_may_still_come(message: str) -> None:
    instance = read(actual_status="loading", status_msg=message)
    assert (instance.boot_failed, instance.detail) == ("", message)


def test_loading_that_vast_gave_up_has_failed() -> None:
    assert "gave up" in read(actual_status="loading", intended_status="stopped", status_msg=None).boot_failed


@pytest.mark.parametrize("status", ["running", "unknown", "offline"])
def test_what_ran_has_no_boot_to_fail(status: str) -> None:
    assert read(actual_status=status, status_msg=HOPELESS[0]).boot_failed == ""


def test_the_end_of_a_long_message_is_kept_because_it_moves() -> None:
    layers = "".join(f"layer {n}: Download complete\n" for n in range(500))
    first, second = (read(actual_status="loading", status_msg=layers + end).detail for end in ("a: 1%", "a: 2%"))
    assert first != second
    assert len(first) <= 2000
    assert "\n" not in first


LOOK_ALIKES = [
    "provefleet:c:i ",
    " provefleet:c:i",
    "provefleet:c:i\n",
    "provefleet:c:i\x00",
    "provefleet:c:i" + "\ud800",
]


@pytest.mark.parametrize("label", LOOK_ALIKES)
def test_no_label_becomes_ours_by_being_cleaned(label: str) -> None:
    read_label = read(label=label).label
    assert read_label != "provefleet:c:i"
    read_label.encode()
    assert "\x00" not in read_label


def test_the_two_ways_in_are_kept_apart() -> None:
    facts = read(
        public_ipaddr=" 203.0.113.7\n", ssh_host="ssh4.vast.ai", ssh_port=12345, image_runtype="ssh_proxy",
        ports={"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "20022"}, {"HostIp": "::", "HostPort": "20022"}]},
    ).facts  # fmt: skip
    assert facts["ssh_direct"] == {"host": "203.0.113.7", "port": 20022}
    assert facts["ssh_proxy"] == {"host": "ssh4.vast.ai", "port": 12345}
    assert facts["ports"] == {"22/tcp": 20022}


def test_the_proxy_of_a_machine_with_jupyter_is_one_port_further() -> None:
    facts = read(ssh_host="ssh4.vast.ai", ssh_port=12345, image_runtype="jupyter_direc ssh_direc ssh_proxy").facts
    assert facts["ssh_proxy"]["port"] == 12346
    assert "ssh_direct" not in facts


@pytest.mark.parametrize(
    "ports", [None, {}, [], "22", {"22/tcp": None}, {"22/tcp": [{}]}, {"22/tcp": [{"HostPort": "x"}]}]
)
def test_ports_that_are_not_there_yet(ports: Any) -> None:
    assert read(public_ipaddr="203.0.113.7", ports=ports).facts["ports"] == {}


# On a market.


@pytest.mark.parametrize("count", [0, 25, 26, 51])
def test_a_market_of_any_size_is_listed_whole(count: int) -> None:
    market = Market(seed=2)
    account = market.add_account(KEY)
    for n in range(count):
        market.add_instance(account, f"stranger-{n}" if n % 3 else None)
    listing = on_market(market).list()
    assert listing.complete
    assert sorted(int(i.provider_id) for i in listing.instances) == sorted(market.instances)
    assert market.violations == []
