"""Renting where an account pays: one create at a time, no credit, machines made but stopped, lists that lag."""

from __future__ import annotations

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from jobs.deploy import CREATE_HOLD_MS, NO_CREDIT_PATIENCE_MS, OFFER_AGE_MS, deploy
from jobs.destroy import destroy
from jobs.domain import roles
from jobs.domain.instances import request_destroy
from jobs.domain.market_models import Account, Offer
from jobs.domain.models import Instance
from jobs.market.providers.base import KeyRefused, NoCredit, RentedStopped
from jobs.prepare import prepare
from tests.fakes.market import lost
from tests.jobs.rows import new_instance, new_run
from tests.jobs.scene import Scene

ROLE = "create:local"


def broke() -> None:
    raise NoCredit("the account lacks credit; see the billing page")


@pytest.fixture
def paid(scene: Scene) -> Scene:
    """The scene on a marketplace that charges an account with $20 in it."""
    scene.market.remote = scene.market.bills = True
    object.__setattr__(scene.context.settings, "public_url", "https://fleet.provefleet.dev")
    for n in range(3):
        scene.market.offer(f"o{n}")
    refill(scene)
    return scene


def refill(scene: Scene) -> None:
    """The credit was read just now."""
    with scene.context.sessions() as session:
        session.merge(Account(provider="local", credit_dollars=20.0, read_ms=scene.clock(), error=""))
        session.commit()


def test_one_create_at_a_time_for_an_account(paid: Scene) -> None:
    scene = paid
    _, instance_id = scene.placed()
    assert roles.take(scene.context.sessions, ROLE, "another job", scene.clock(), CREATE_HOLD_MS)
    deploy(instance_id, 1)
    instance = scene.instance(instance_id)
    assert (instance.state, instance.rent_sent_ms, scene.market.sold) == ("renting", None, [])
    roles.resign(scene.context.sessions, ROLE, "another job")
    scene.clock.advance(1)
    deploy(instance_id, 2)
    assert scene.instance(instance_id).state == "loading"
    # And it is given back, for the next.
    assert roles.take(scene.context.sessions, ROLE, "a third", scene.clock() + 1, CREATE_HOLD_MS)


def test_who_died_holding_it_delays_the_others_only(paid: Scene) -> None:
    scene = paid
    _, instance_id = scene.placed()
    assert roles.take(scene.context.sessions, ROLE, "the dead", scene.clock(), CREATE_HOLD_MS)
    scene.clock.advance(CREATE_HOLD_MS / 1000 + 0.001)
    deploy(instance_id, 1)
    assert scene.instance(instance_id).state == "loading"


def test_absence_is_believed_only_after_a_minute(paid: Scene) -> None:
    scene = paid
    _, instance_id = scene.placed()
    scene.market.on("rent", "before", lost)
    deploy(instance_id, 1)
    for attempt in range(2, 11):
        scene.clock.advance(6)
        deploy(instance_id, attempt)
    assert scene.instance(instance_id).state == "renting"
    assert scene.instance(instance_id).absent_lists == 9
    scene.clock.advance(6.001)
    deploy(instance_id, 20)
    assert scene.instance(instance_id).state == "not_rented"


def test_a_machine_made_but_stopped_is_sealed_and_destroyed_within_half_a_minute(paid: Scene) -> None:
    scene = paid
    run_id, instance_id = scene.placed()

    def stopped() -> None:
        provider_id = scene.market.add(scene.instance(instance_id).label)
        scene.market.show(scene.instance(instance_id).label, status="stopped", stopped_why="outbid")
        raise RentedStopped("the bid is below the market's", provider_id)

    scene.market.on("rent", "before", stopped)
    deploy(instance_id, 1)
    assert scene.instance(instance_id).state == "sealing"
    assert scene.run(run_id).state == "active"
    began = scene.clock()
    scene.tick_until(lambda: scene.market.labels == [], 30)
    assert scene.clock() - began <= 30_000
    scene.tick_until(lambda: scene.instance(instance_id).state == "destroyed", 60)
    assert scene.instance(instance_id).rented_ms is not None


def test_without_credit_it_waits_and_blames_no_offer(paid: Scene) -> None:
    scene = paid
    run_id, instance_id = scene.placed()
    scene.market.on("rent", "before", broke)
    deploy(instance_id, 1)
    run = scene.run(run_id)
    assert (run.state, run.rentals, scene.instance(instance_id).state) == ("active", 0, "not_rented")
    assert run.stage.startswith("waits: no credit")
    assert run.wake_at_ms == scene.clock() + 60_000
    # The offer is as good as before once somebody has paid.
    scene.clock.advance(60)
    refill(scene)
    prepare(run_id, 2)
    assert scene.instance_of(run_id).offer_id == scene.instance(instance_id).offer_id


def test_without_credit_for_half_an_hour_it_ends(paid: Scene) -> None:
    scene = paid
    run_id, instance_id = scene.placed()
    scene.market.on("rent", "before", broke, broke)
    deploy(instance_id, 1)
    scene.clock.advance(NO_CREDIT_PATIENCE_MS / 1000 + 1)
    refill(scene)
    prepare(run_id, 2)
    deploy(scene.instance_of(run_id).id, 1)
    assert scene.run(run_id).state == "failed"
    assert scene.run(run_id).reason.startswith("no credit")


def test_an_offer_seen_long_ago_is_not_rented_at_its_old_price(paid: Scene) -> None:
    scene = paid
    run_id, instance_id = scene.placed()
    with scene.context.sessions() as session:
        session.execute(update(Offer).values(seen_ms=scene.clock() - OFFER_AGE_MS - 1))
        session.commit()
    deploy(instance_id, 1)
    assert scene.instance(instance_id).state == "not_rented"
    assert scene.market.calls.get("rent", 0) == 0
    assert (scene.run(run_id).state, scene.run(run_id).rentals) == ("active", 0)


def test_no_two_live_rentals_of_one_machine_whatever_races(scene: Scene) -> None:
    """Under two offers, or one that is sold twice; the database itself says no. Orphans are as they are."""
    runs = [new_run(scene.context, provider="vast").id for _ in range(3)]
    there = {"provider": "vast", "machine_id": "box"}
    first = new_instance(scene.context, **there, run_id=runs[0])
    with pytest.raises(IntegrityError):
        new_instance(scene.context, **there, run_id=runs[1])
    new_instance(scene.context, **there, run_id=None, state="sealing")
    new_instance(scene.context, **{**there, "machine_id": "another"}, run_id=runs[1])
    with scene.context.sessions() as session:
        session.get_one(Instance, first.id).state = "destroyed"
        session.commit()
    new_instance(scene.context, **there, run_id=runs[2])


def test_a_refused_key_pages_the_operator_once_and_proves_nothing(paid: Scene) -> None:
    scene = paid
    agent = scene.working()

    def refused() -> None:
        raise KeyRefused("Vast.ai does not accept the key; make a new one")

    request_destroy(scene.context, agent.instance_id, "anna", "too loud", force=True)
    scene.market.on("destroy", "before", *[refused] * 3)
    for attempt in range(3):
        destroy(agent.instance_id, attempt)
        scene.clock.advance(6)
    instance = scene.instance(agent.instance_id)
    assert (instance.state, instance.delete_sent_ms, instance.absent_lists) == ("destroying", None, 0)
    [event] = scene.events("provider.key_refused")
    assert "make a new one" in event.reason
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroyed", 60)
