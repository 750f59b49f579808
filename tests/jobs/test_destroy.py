"""Ending a rental: our DELETE first, then two complete lists, seconds apart, that do not show it."""

from __future__ import annotations

import pytest

from jobs.destroy import destroy
from jobs.domain.instances import DestroyRefused, request_destroy
from jobs.domain.runs import cancel_run
from tests.fakes.market import lost
from tests.jobs.agent import Agent
from tests.jobs.scene import Scene


def destroying(scene: Scene) -> Agent:
    agent = scene.working()
    request_destroy(scene.context, agent.instance_id, "anna", "too loud", force=True)
    assert scene.instance(agent.instance_id).state == "destroying"
    return agent


def test_delete_then_two_lists_apart(scene: Scene) -> None:
    agent = destroying(scene)
    destroy(agent.instance_id, 1)
    assert scene.market.labels == []
    assert scene.market.calls.get("list", 0) == 0  # the DELETE waits for no list
    seen = []
    for attempt in range(2, 8):
        destroy(agent.instance_id, attempt)
        seen.append((scene.instance(agent.instance_id).state, scene.instance(agent.instance_id).absent_lists))
        scene.clock.advance(0.8)
    # One begun in the very moment of the DELETE may have been answered before it, and counts for nothing.
    assert seen[:4] == [("destroying", 0)] + [("destroying", 1)] * 2 + [("destroyed", 2)]
    instance = scene.instance(agent.instance_id)
    assert instance.token_sha256 is None
    assert instance.ended_ms is not None
    assert instance.spent_dollars == pytest.approx(0.36 * (instance.ended_ms - (instance.rented_ms or 0)) / 3_600_000)


def test_absence_before_our_delete_is_no_proof(scene: Scene) -> None:
    agent = destroying(scene)
    scene.market.empty = True
    destroy(agent.instance_id, 1)  # not listed: the DELETE is sent all the same
    assert len(scene.market.deleted) == 1
    assert scene.instance(agent.instance_id).absent_lists == 0
    for attempt in (2, 3):
        scene.clock.advance(2)
        destroy(agent.instance_id, attempt)
    assert scene.instance(agent.instance_id).state == "destroyed"


def test_it_comes_back_between_two_lists(scene: Scene) -> None:
    agent = destroying(scene)
    label = scene.instance(agent.instance_id).label
    destroy(agent.instance_id, 1)
    scene.clock.advance(2)
    destroy(agent.instance_id, 2)
    assert scene.instance(agent.instance_id).absent_lists == 1
    scene.market.add(label)
    scene.clock.advance(2)
    destroy(agent.instance_id, 3)
    assert scene.instance(agent.instance_id).absent_lists == 0
    assert scene.market.labels == []
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroyed")


def test_a_partial_list_is_no_proof(scene: Scene) -> None:
    agent = destroying(scene)
    destroy(agent.instance_id, 1)
    scene.market.complete = False
    scene.tick(times=10)
    assert scene.instance(agent.instance_id).state == "destroying"
    scene.market.complete = True
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroyed")


@pytest.mark.parametrize("call", ["list", "destroy"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_provider_that_is_down_is_asked_again(scene: Scene, call: str, when: str) -> None:
    agent = destroying(scene)
    scene.market.on(call, when, lost, lost)
    destroy(agent.instance_id, 1)
    scene.clock.advance(2)
    destroy(agent.instance_id, 2)
    assert scene.instance(agent.instance_id).state == "destroying"
    # Said once, however often it is asked.
    assert len(scene.events("provider.unavailable")) == 1
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroyed")
    assert scene.market.labels == []


def test_a_duplicate_under_our_label_is_destroyed_too(scene: Scene) -> None:
    agent = destroying(scene)
    scene.market.add(scene.instance(agent.instance_id).label)
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroyed")
    assert scene.market.labels == []
    assert len(scene.market.deleted) == 2


def test_an_operators_destroy_waits_for_the_evidence(scene: Scene) -> None:
    agent = scene.working()
    request_destroy(scene.context, agent.instance_id, "anna", "too loud")
    assert scene.instance(agent.instance_id).state == "sealing"
    assert scene.run(agent.run_id).state == "cancelled"
    destroy(agent.instance_id, 1)
    assert scene.market.deleted == []


def test_force_is_recorded_with_its_reason(scene: Scene) -> None:
    agent = destroying(scene)
    instance = scene.instance(agent.instance_id)
    assert (instance.forced_by, instance.evidence, instance.evidence_sha256) == ("anna", "gaps", None)
    assert "too loud" in (instance.evidence_gap or "")
    assert "too loud" in instance.evidence_text
    assert [e.actor for e in scene.events("instance.forced")] == ["anna"]


def test_a_destroy_that_can_not_be(scene: Scene) -> None:
    agent = scene.working()
    for instance_id, reason, word in ((agent.instance_id, " ", "say why"), ("0" * 32, "x", "no such")):
        with pytest.raises(DestroyRefused, match=word):
            request_destroy(scene.context, instance_id, "anna", reason)
    request_destroy(scene.context, agent.instance_id, "anna", "first")
    request_destroy(scene.context, agent.instance_id, "anna", "again")
    scene.market.exit(scene.instance(agent.instance_id).label)
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroyed")
    with pytest.raises(DestroyRefused, match="destroyed already"):
        request_destroy(scene.context, agent.instance_id, "anna", "again", force=True)


def test_money_is_counted_to_the_proven_end(scene: Scene) -> None:
    agent = scene.working()
    scene.clock.advance(1800)
    agent.lease("benchmark", done=1)
    assert cancel_run(scene.context, agent.run_id, "anna", "no")
    assert agent.seal().accepted
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroyed")
    instance = scene.instance(agent.instance_id)
    assert 0.18 <= instance.spent_dollars <= 0.36 * 1830 / 3600
