"""One poller: the list is read once for everyone, kept, and believed only for moments before it was begun."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.context import Context
from jobs.domain.market_models import Snapshot
from jobs.market import listing
from jobs.market.providers.base import BeingListed, ProviderUnavailable
from tests.fakes.market import lost
from tests.jobs.scene import Scene


def test_it_is_read_once_in_its_interval_for_everyone(scene: Scene) -> None:
    scene.market.add("a")
    first = listing.read(scene.context, "local")
    assert (first.complete, [i.label for i in first.instances], first.begun_ms) == (True, ["a"], scene.clock())
    scene.market.add("b")
    scene.clock.advance(1.9)
    assert listing.read(scene.context, "local") == first
    scene.clock.advance(0.1)
    assert [i.label for i in listing.read(scene.context, "local").instances] == ["a", "b"]
    assert scene.market.calls["list"] == 2


def test_a_marketplace_is_asked_less_often(scene: Scene) -> None:
    scene.market.remote = True
    for _ in range(11):
        listing.read(scene.context, "local")
        scene.clock.advance(1)
    assert scene.market.calls["list"] == 3


def test_one_that_must_be_newer_is_read_anew(scene: Scene) -> None:
    listing.read(scene.context, "local")
    with pytest.raises(BeingListed):
        listing.read(scene.context, "local", after_ms=scene.clock())
    scene.clock.advance(0.001)
    assert listing.read(scene.context, "local", after_ms=scene.clock() - 1).begun_ms == scene.clock()
    assert scene.market.calls["list"] == 2


def test_a_part_is_given_on_and_never_kept(scene: Scene) -> None:
    scene.market.add("a")
    whole = listing.read(scene.context, "local")
    scene.clock.advance(3)
    scene.market.complete = False
    assert listing.read(scene.context, "local").complete is False
    assert listing.newest(scene.context, "local") == whole


def test_one_that_is_down_is_not_asked_more_often_for_it(scene: Scene) -> None:
    scene.market.on("list", "before", lost)
    for _ in range(3):
        with pytest.raises(ProviderUnavailable, match="connection reset"):
            listing.read(scene.context, "local")
    assert scene.market.calls["list"] == 1
    scene.clock.advance(2)
    assert listing.read(scene.context, "local").complete


def test_of_many_at_once_one_reads(scene: Scene, make_context: Callable[..., Context]) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slowly() -> None:
        asked.set()
        assert go_on.wait(20)

    scene.market.on("list", "before", slowly)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(listing.read, scene.context, "local")
        assert asked.wait(20)
        for _ in range(3):
            with pytest.raises(BeingListed):
                listing.read(make_context(), "local")
        go_on.set()
        assert first.result().complete
    assert scene.market.calls["list"] == 1


def test_a_poller_that_died_is_followed_by_another(scene: Scene) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    scene.market.on("list", "before", die)
    with pytest.raises(KeyboardInterrupt):
        listing.read(scene.context, "local")
    scene.clock.advance(listing.POLL_MS / 1000)
    with pytest.raises(BeingListed):
        listing.read(scene.context, "local")
    scene.clock.advance(0.001)
    assert listing.read(scene.context, "local").complete


def test_a_late_poller_does_not_put_an_older_list_over_a_newer(scene: Scene) -> None:
    """It was taken for dead, and comes back."""
    scene.market.add("old")

    def meanwhile() -> None:
        scene.clock.advance(60)
        scene.market.add("new")
        listing.read(scene.context, "local")
        scene.market.lose("new")  # what this call will read

    scene.market.on("list", "before", meanwhile)
    listing.read(scene.context, "local")
    newest = listing.newest(scene.context, "local")
    assert newest is not None
    assert (newest.begun_ms, sorted(i.label for i in newest.instances)) == (scene.clock(), ["new", "old"])
    with scene.context.sessions() as session:
        assert session.get_one(Snapshot, "local").poller is None
