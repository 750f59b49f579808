"""Which addresses a rented machine could use, and what the refusal says of those that it couldn't."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.market import reach
from jobs.market.providers.base import Provider
from jobs.settings import Settings

REMOTE, HERE = (cast("Provider", SimpleNamespace(name=name, remote=name != "local")) for name in ("vast", "local"))
PUBLIC = "https://machines.example.com"


def settings(**changes: Any) -> Settings:
    return Settings(**{"public_url": PUBLIC, "s3_public_endpoint": "https://s3.example.com", **changes})


@pytest.mark.parametrize(
    "url",
    [
        PUBLIC,
        "https://machines.example.com:8443/behind/a/path",
        "https://8.8.8.8",
        "https://[2606:4700::1111]:444",
        "https://xn--bcher-kva.example.org",
        "https://machines.example.com.",
    ],
)
def test_a_public_https_address_will_do(url: str) -> None:
    assert reach.trouble(url) == ""
    assert reach.refusal(settings(public_url=url), REMOTE) == ""


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "is not set"),
        ("http://machines.example.com", "is not https"),
        ("https://localhost:8001", "this network only"),
        ("https://machine", "this network only"),
        ("https://machine.local", "this network only"),
        ("https://MACHINE.LAN", "this network only"),
        ("https://machine.home.arpa", "this network only"),
        ("https://box.internal.", "this network only"),
        ("https://127.0.0.1:8001", "loopback"),
        ("https://127.1", "loopback"),
        ("https://0x7f000001", "loopback"),
        ("https://2130706433", "loopback"),
        ("https://[::1]", "loopback"),
        ("https://[::ffff:127.0.0.1]", "loopback"),
        ("https://[2002:7f00:1::]", "loopback"),
        ("https://0.0.0.0:8001", "does not route"),
        ("https://10.1.2.3", "does not route"),
        ("https://172.16.0.1", "does not route"),
        ("https://192.168.1.5", "does not route"),
        ("https://100.64.0.1", "does not route"),
        ("https://224.0.0.1", "does not route"),
        ("https://169.254.169.254", "link-local"),
        ("https://[fe80::1]", "link-local"),
        ("https://[fd00::1]", "does not route"),
        ("https://user:word@machines.example.com", "address alone"),
        ("https://machines.example.com/?a=1", "address alone"),
        ("https://machines.example.com:99999", "no web address"),
        ("https://[::1", "no web address"),
        ("https://:8001", "no web address"),
        ("https://machines.example.com:0", "no web address"),
    ],
)
def test_what_a_stranger_could_not_use_is_refused_with_the_reason_and_the_remedy(url: str, why: str) -> None:
    assert why in reach.trouble(url)
    given = settings().model_copy(update={"public_url": url})
    said = reach.refusal(given, REMOTE)
    assert why in said
    assert "PROVEFLEET_PUBLIC_URL" in said
    assert "docs/operations.md" in said
    assert "word" not in said, "a password in an address must not be repeated"


def test_a_machine_here_is_always_reached() -> None:
    nothing = settings(public_url="", s3_public_endpoint="")
    assert reach.refusal(nothing, HERE) == ""
    assert reach.relayed(nothing, HERE) == ""


@pytest.mark.parametrize("market", ["http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000"])
def test_machines_of_a_market_on_loopback_are_on_this_host(market: str) -> None:
    given = settings(public_url="http://127.0.0.1:8001", s3_public_endpoint="http://127.0.0.1:8333", vast_url=market)
    assert reach.on_this_host(given)
    assert reach.refusal(given, REMOTE) == ""
    assert reach.relayed(given, REMOTE) == ""


def test_even_on_this_host_a_private_address_may_be_another_machine_s() -> None:
    given = settings(public_url="http://10.0.0.5:8001", vast_url="http://127.0.0.1:9000")
    assert "does not route" in reach.refusal(given, REMOTE)


@pytest.mark.parametrize("market", ["https://console.vast.ai", "https://localhost.example.com", "http://10.0.0.9"])
def test_a_market_elsewhere_is_not_here(market: str) -> None:
    assert not reach.on_this_host(settings(vast_url=market))


def test_an_archive_behind_the_controller_is_relayed() -> None:
    assert reach.relayed(settings(), REMOTE) == ""
    assert "this network only" in reach.relayed(settings(s3_public_endpoint="http://seaweedfs:8333"), REMOTE)
    assert "loopback" in reach.relayed(settings(s3_public_endpoint="", s3_endpoint="http://127.0.0.1:8333"), REMOTE)
