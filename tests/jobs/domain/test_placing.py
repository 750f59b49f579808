"""Choosing an offer: limits, marks, and two runs that want the same one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobs.context import Context
from jobs.domain.market_models import Machine
from jobs.domain.models import Run
from jobs.domain.placing import MAX_OFFERS, Placed, place
from jobs.domain.work import take
from jobs.market import reputation
from tests.jobs.rows import NOW, new_instance, new_offer, new_run
from tests.jobs.scene import Scene


def placed(context: Context, run_id: str) -> Placed:
    held = take(context, Run, run_id, ("queued", "active"))
    assert held is not None
    return place(context, held[0])


def queued(context: Context, **fields: Any) -> str:
    return new_run(context, state="queued", **fields).id


def mark(context: Context, machine_id: str, word: str) -> None:
    with context.sessions() as session:
        times = {"first_seen_ms": NOW, "last_seen_ms": NOW}
        session.add(Machine(provider="local", machine_id=machine_id, **times))
        session.flush()
        reputation.mark(session, NOW, "local", machine_id, word, "0 of 2 valid", "benchmark")
        session.commit()


def test_the_cheapest_is_taken_and_the_intent_written_down(scene: Scene) -> None:
    context = scene.context
    new_offer(context, "dear", 0.72)
    new_offer(context, "cheap", 0.36)
    run_id = queued(context, max_duration_s=3600)
    assert placed(context, run_id) == Placed()
    run, instance = scene.run(run_id), scene.instance_of(run_id)
    assert (run.state, run.rentals, run.claim_token) == ("active", 1, None)
    assert (instance.state, instance.offer_id, instance.rent_sent_ms) == ("renting", "cheap", None)
    assert instance.label.endswith(f":{instance.id}")
    assert instance.label.startswith("provefleet:")
    assert instance.reserved_dollars == pytest.approx(0.36 * (3600 + 120 + 900 + 60) / 3600)
    assert instance.wake_at_ms is not None
    assert [e.reason for e in scene.events("instance.intended")]


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({"max_dollars_per_hour": 0.3}, "over the limit"),
        ({"max_dollars": 0.01}, "sealing the evidence alone"),
        ({"offer_id": "other"}, "offer other"),
    ],
    ids=["price", "tail", "gone"],
)
def test_limits_are_final(scene: Scene, limits: dict[str, Any], word: str) -> None:
    new_offer(scene.context, "o1", 0.36)
    outcome = placed(scene.context, queued(scene.context, **limits))
    assert outcome.final
    assert word in outcome.reason
    assert scene.instances() == []


def test_no_offers_at_all(scene: Scene) -> None:
    outcome = placed(scene.context, queued(scene.context))
    assert outcome.final
    assert "scan again" in outcome.reason


def test_a_rented_offer_is_waited_for(scene: Scene) -> None:
    new_offer(scene.context, "o1")
    new_instance(scene.context, offer_id="o1", state="loading")
    outcome = placed(scene.context, queued(scene.context))
    assert outcome.reason.startswith("waiting for a free offer: works for us now")
    assert not outcome.final
    # It left the market altogether while it is rented: still only taken, not gone.
    with scene.context.sessions() as session:
        session.delete(session.get_one(type(scene.offers()[0]), ("local", "o1")))
        session.commit()
    assert not placed(scene.context, queued(scene.context)).final
    assert not placed(scene.context, queued(scene.context, offer_id="o1")).final
    assert placed(scene.context, queued(scene.context, offer_id="o2")).final


def test_a_broken_machine_is_skipped_unless_asked_for(scene: Scene) -> None:
    context = scene.context
    new_offer(context, "bad", 0.1, machine_id="m-bad")
    mark(context, "m-bad", "broken")
    outcome = placed(context, queued(context))
    assert outcome.final
    assert "marked broken" in outcome.reason
    new_offer(context, "good", 0.5, machine_id="m-good")
    mark(context, "m-good", "slow")
    run_id = queued(context)
    assert placed(context, run_id) == Placed()
    assert scene.instance_of(run_id).offer_id == "good"
    run_id = queued(context, offer_id="bad")
    assert placed(context, run_id) == Placed()
    assert scene.instance_of(run_id).offer_id == "bad"


def test_after_many_offers_in_vain_the_run_ends(scene: Scene) -> None:
    new_offer(scene.context, "o1")
    outcome = placed(scene.context, queued(scene.context, rentals=MAX_OFFERS))
    assert outcome.final
    assert "8 offers were tried" in outcome.reason


def test_a_lost_claim_places_nothing(scene: Scene) -> None:
    new_offer(scene.context, "o1")
    run_id = queued(scene.context)
    held = take(scene.context, Run, run_id, ("queued",))
    assert held is not None
    scene.clock.advance(60)
    assert take(scene.context, Run, run_id, ("queued",)) is not None
    assert place(scene.context, held[0]) == Placed()
    assert scene.instances() == []


def test_of_many_runs_at_once_one_gets_the_offer(scene: Scene, make_context: Callable[..., Context]) -> None:
    new_offer(scene.context, "o1")
    runs = [queued(scene.context) for _ in range(6)]
    start = threading.Barrier(6)

    def race(run_id: str) -> Placed:
        context = make_context()
        start.wait()
        return placed(context, run_id)

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(race, runs))
    assert sorted(o.reason.split(":")[0] for o in outcomes) == [""] + ["waiting for a free offer"] * 5
    assert len(scene.instances()) == 1
    assert sum(scene.run(run_id).state == "active" for run_id in runs) == 1
