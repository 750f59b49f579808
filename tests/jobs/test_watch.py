"""What the provider's list proves: machines that ended, and orphans of ours; and what it never proves."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from jobs.domain.models import Controller
from jobs.watch import watch
from tests.fakes.market import lost
from tests.jobs.scene import Scene


def look(scene: Scene, times: int = 1) -> None:
    for _ in range(times):
        scene.clock.advance(2)
        watch(scene.context, "local")


def test_a_machine_that_ended_is_believed_at_the_second_list(scene: Scene) -> None:
    agent = scene.working(proofs=5)
    agent.lease("benchmark", done=2, total=5)
    scene.market.exit(scene.instance(agent.instance_id).label)
    look(scene)
    assert scene.instance(agent.instance_id).state == "benchmarking"
    look(scene)
    run = scene.run(agent.run_id)
    assert run.state == "failed"
    assert run.reason.startswith("machine vanished at ")
    assert "after 2 of 5 proofs" in run.reason
    assert scene.instance(agent.instance_id).state == "sealing"
    assert scene.instance(agent.instance_id).vanished_ms == scene.clock()


def test_a_machine_that_is_not_listed_is_believed_at_the_third(scene: Scene) -> None:
    agent = scene.working()
    scene.market.add("a stranger's")
    scene.market.lose(scene.instance(agent.instance_id).label)
    look(scene, 2)
    assert scene.instance(agent.instance_id).state == "benchmarking"
    look(scene)
    assert scene.instance(agent.instance_id).state == "sealing"


def test_seen_again_it_starts_anew(scene: Scene) -> None:
    agent = scene.working()
    label = scene.instance(agent.instance_id).label
    for _ in range(3):
        scene.market.exit(label)
        look(scene)
        scene.market.set_status(label, "running")
        look(scene)
    assert scene.instance(agent.instance_id).state == "benchmarking"
    assert scene.instance(agent.instance_id).missed_lists == 0


@pytest.mark.parametrize("how", ["empty", "partial", "unavailable"])
def test_no_list_kills_a_fleet(scene: Scene, how: str) -> None:
    for n in range(2):
        scene.market.offer(f"o{n}")
    agents = [scene.working() for _ in range(2)]
    scene.market.empty = how == "empty"
    scene.market.complete = how != "partial"
    if how == "unavailable":
        scene.market.on("list", "before", *[lost] * 9)
    look(scene, 8)
    assert [scene.instance(a.instance_id).state for a in agents] == ["benchmarking"] * 2


def controller(scene: Scene) -> str:
    with scene.context.sessions() as session:
        return session.scalars(select(Controller.id)).one()


def test_an_orphan_of_ours_is_adopted_sealed_and_destroyed(scene: Scene) -> None:
    watch(scene.context, "local")
    scene.market.add(f"provefleet:{controller(scene)}:{'0' * 32}", dollars_per_hour=2.0)
    scene.tick_until(lambda: scene.market.labels == [])
    scene.tick_until(lambda: [i.state for i in scene.instances()] == ["destroyed"])
    orphan = scene.instances()[0]
    assert orphan.run_id is None
    assert orphan.evidence_sha256 is not None
    assert orphan.spent_dollars > 0
    assert len(scene.events("instance.adopted")) == 1


def test_two_orphans_under_one_label_both_end(scene: Scene) -> None:
    watch(scene.context, "local")
    for _ in range(2):
        scene.market.add(f"provefleet:{controller(scene)}:{'0' * 32}")
    scene.tick_until(lambda: scene.market.labels == [])


@pytest.mark.parametrize("label", ["", "web server", "provefleet", f"provefleet:{'f' * 32}:{'0' * 32}"])
def test_other_labels_are_never_touched(scene: Scene, label: str) -> None:
    scene.market.add(label)
    scene.tick(times=10)
    assert scene.market.labels == [label]
    assert scene.market.deleted == []
    assert scene.instances() == []


def test_what_was_placed_while_the_list_was_read_is_no_orphan(scene: Scene) -> None:
    from jobs.deploy import deploy

    def meanwhile() -> None:
        deploy(scene.placed()[1], 1)

    scene.market.on("list", "before", meanwhile)
    look(scene)
    assert [i.state for i in scene.instances()] == ["loading"]
