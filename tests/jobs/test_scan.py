"""Reading the market into the table of offers."""

from __future__ import annotations

import pytest

from jobs.market import provider
from jobs.market.providers.base import ProviderUnavailable, SearchQuotaUsedUp, UnknownProvider
from jobs.scan import refresh, refresh_if_stale, scan_offers
from tests.fakes.market import lost
from tests.jobs.scene import Scene


def test_the_newest_scan_is_what_is_offered(scene: Scene) -> None:
    scene.market.offer("o1", 0.5)
    scene.market.offer("o2", 0.7)
    assert scan_offers("local", 1) == 2
    scene.market.withdraw("o1")
    scene.market.offer("o3", 0.9)
    scene.clock.advance(5)
    assert scan_offers("local", 2) == 2
    assert [(o.offer_id, o.seen_ms) for o in scene.offers()] == [("o2", scene.clock()), ("o3", scene.clock())]
    scene.market.offer("o1", 0.4)  # back again, cheaper
    scan_offers("local", 3)
    assert [(o.offer_id, o.dollars_per_hour) for o in scene.offers()][:1] == [("o1", 0.4)]


def test_machines_are_remembered_with_what_was_learned(scene: Scene) -> None:
    scene.market.offer("o1")
    scan_offers("local", 1)
    first = scene.machine("m-o1")
    scene.market.withdraw("o1")
    scene.clock.advance(60)
    scan_offers("local", 2)
    assert scene.machine("m-o1").last_seen_ms == first.last_seen_ms
    scene.market.offer("o1-again", machine_id="m-o1")
    scan_offers("local", 3)
    assert scene.machine("m-o1").last_seen_ms == scene.clock()
    assert scene.machine("m-o1").first_seen_ms == first.first_seen_ms


def test_a_provider_that_fails_changes_nothing(scene: Scene) -> None:
    scene.market.offer("o1")
    scan_offers("local", 1)
    scene.market.on("scan", "before", lost)
    with pytest.raises(ProviderUnavailable):
        refresh(scene.context, "local")
    assert [o.offer_id for o in scene.offers()] == ["o1"]
    assert len(scene.events("offers.scan_failed")) == 1


def test_fresh_offers_are_not_scanned_again(scene: Scene) -> None:
    scene.market.offer("o1")
    for _ in range(3):
        refresh_if_stale(scene.context, "local")
    assert scene.market.calls["scan"] == 1
    scene.clock.advance(60.001)
    refresh_if_stale(scene.context, "local")
    assert scene.market.calls["scan"] == 2


def test_a_search_that_failed_is_not_repeated_at_once(scene: Scene) -> None:
    scene.market.on("scan", "before", lost)
    for _ in range(3):
        with pytest.raises(ProviderUnavailable, match="connection reset"):
            refresh(scene.context, "local")
    assert scene.market.calls["scan"] == 1
    assert len(scene.events("offers.scan_failed")) == 1
    scene.clock.advance(2)
    assert refresh(scene.context, "local") == 0


def test_a_quota_that_is_used_up_is_waited_out(scene: Scene) -> None:
    scene.market.remote = True
    scene.market.offer("o1")
    scan_offers("local", 1)
    again_ms = scene.clock() + 7 * 3_600_000

    def used_up() -> None:
        raise SearchQuotaUsedUp("the day's searches are used up", again_ms)

    scene.market.on("scan", "before", used_up)
    for hours in (1, 5, 0.999):
        scene.clock.advance(hours * 3600)
        with pytest.raises(ProviderUnavailable, match="used up"):
            refresh_if_stale(scene.context, "local")
    assert scene.market.calls["scan"] == 2
    assert [o.offer_id for o in scene.offers()] == ["o1"]  # of the last scan that worked
    scene.clock.advance(4)
    refresh_if_stale(scene.context, "local")
    assert scene.market.calls["scan"] == 3


def test_a_market_without_offers_is_not_searched_all_the_time(scene: Scene) -> None:
    for _ in range(3):
        refresh_if_stale(scene.context, "local")
    assert scene.market.calls["scan"] == 1


def test_an_unknown_provider_is_named(scene: Scene) -> None:
    with pytest.raises(UnknownProvider, match="'mars'"):
        provider(scene.context, "mars")
    assert provider(scene.context, "local") is scene.market
    scene.context.providers.clear()
    assert provider(scene.context, "local").name == "local"
