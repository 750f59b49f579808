"""A marketplace's list: what is believed at once, what is given time, and how a run goes on to another machine."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.domain.instances import MAX_MACHINES
from jobs.domain.models import Instance
from jobs.prepare import prepare
from jobs.watch import watch
from tests.jobs.agent import Agent
from tests.jobs.scene import Scene


@pytest.fixture
def elsewhere(scene: Scene) -> Scene:
    """The scene on a marketplace of four machines, reachable from there."""
    scene.market.remote = True
    object.__setattr__(scene.context.settings, "public_url", "https://fleet.provefleet.dev")
    for n in range(4):
        scene.market.offer(f"o{n}", 0.36)
    return scene


def label(scene: Scene, agent: Agent) -> str:
    return scene.instance(agent.instance_id).label


def look(scene: Scene, times: int = 1, seconds: float = 5.0) -> None:
    for _ in range(times):
        scene.clock.advance(seconds)
        watch(scene.context, "local")


def goes_on(scene: Scene, agent: Agent) -> Instance:
    """The run's next machine."""
    assert scene.run(agent.run_id).state == "active", scene.told()
    assert scene.instance(agent.instance_id).state == "sealing"

    def placed() -> bool:
        if scene.instance(agent.instance_id).state == "destroyed":
            prepare(agent.run_id, 9)
        return scene.instance_of(agent.run_id).id != agent.instance_id

    scene.tick_until(placed, 60, seconds=5)
    return scene.instance_of(agent.run_id)


@pytest.mark.parametrize(
    ("shown", "kind", "word"),
    [
        ({"status": "stopped", "stopped_why": "outbid"}, "instance.stopped", "outbid"),
        ({"status": "stopped", "stopped_why": "expired"}, "instance.stopped", "contract ended"),
        ({"status": "stopped", "stopped_why": "no_credit"}, "instance.stopped", "no credit"),
        ({"status": "loading", "boot_failed": "manifest unknown"}, "instance.boot_failed", "manifest unknown"),
        ({"interruptible": True}, "instance.wrong_kind", "interruptible"),
        ({"dollars_per_hour": 0.9}, "instance.too_dear", "over the limit"),
    ],
    ids=["outbid", "expired", "credit", "boot", "kind", "price"],
)
def test_what_is_said_for_certain_is_believed_at_once(
    elsewhere: Scene, shown: dict[str, Any], kind: str, word: str
) -> None:
    scene = elsewhere
    agent = scene.working(max_dollars_per_hour=0.5)
    scene.market.show(label(scene, agent), **shown)
    look(scene)
    assert scene.instance(agent.instance_id).state == "sealing"
    [event] = scene.events(kind)
    assert word in event.reason
    [left] = scene.events("run.goes_on")
    assert word in left.reason
    assert scene.run(agent.run_id).stage.startswith("goes on to another machine")


@pytest.mark.parametrize(
    ("shown", "kept_s", "left_s"),
    [
        ({"status": "exited", "facts": {"intended": "running"}}, 25, 35),
        ({"status": "exited"}, 0, 10),
        ({"status": "unknown"}, 170, 250),
        ({"status": "offline"}, 110, 190),
    ],
    ids=["restarting", "exited", "unknown", "offline"],
)
def test_what_may_pass_is_given_time(elsewhere: Scene, shown: dict[str, Any], kept_s: int, left_s: int) -> None:
    scene = elsewhere
    agent = scene.working(lease_s=900)
    scene.market.show(label(scene, agent), **shown)
    look(scene, kept_s // 5)
    assert scene.instance(agent.instance_id).state == "benchmarking"
    look(scene, (left_s - kept_s) // 5)
    assert scene.instance(agent.instance_id).state == "sealing"


@pytest.mark.parametrize("status", ["unknown", "offline"])
def test_a_machine_that_speaks_to_us_is_there_whatever_the_list_says(elsewhere: Scene, status: str) -> None:
    scene = elsewhere
    agent = scene.working()
    scene.market.show(label(scene, agent), status=status)
    for done in range(60):
        agent.lease("benchmark", done=done, total=99)
        look(scene)
    assert scene.instance(agent.instance_id).state == "benchmarking"


def test_missing_for_half_a_minute_is_not_gone(elsewhere: Scene) -> None:
    scene = elsewhere
    agent = scene.working()
    scene.market.add("a stranger's")
    scene.market.show(label(scene, agent), label="hidden")
    look(scene, 12)
    assert scene.instance(agent.instance_id).state == "benchmarking"
    look(scene, 2)
    assert scene.instance(agent.instance_id).state == "sealing"


def test_a_state_that_nobody_has_heard_of_is_noted_once(elsewhere: Scene) -> None:
    scene = elsewhere
    agent = scene.working()
    scene.market.show(label(scene, agent), status="unknown", facts={"actual": "hibernating"})
    look(scene, 5)
    [event] = scene.events("provider.unheard_status")
    assert "'hibernating'" in event.reason
    assert scene.instance(agent.instance_id).state == "benchmarking"


def test_while_it_loads_a_text_that_changes_is_progress(elsewhere: Scene) -> None:
    """Forty minutes of layers are waited for, five of silence are not."""
    scene = elsewhere
    _, instance_id = scene.rented(max_duration_s=7200)
    name = scene.instance(instance_id).label
    for minute in range(40):
        scene.market.show(name, status="loading", detail=f"layer {minute}: downloading")
        scene.tick(60)
    assert scene.instance(instance_id).state == "loading"
    for _ in range(5):
        scene.tick(60)
    assert scene.instance(instance_id).state == "loading"
    scene.tick(60)
    assert scene.instance(instance_id).state != "loading"
    assert "has not moved for" in scene.events("run.goes_on")[0].reason


def test_a_benchmark_begins_anew_on_the_next_machine(elsewhere: Scene) -> None:
    scene = elsewhere
    agent = scene.working(proofs=3)
    agent.prove(0)
    scene.market.show(label(scene, agent), status="stopped", stopped_why="outbid")
    look(scene)
    second = goes_on(scene, agent)
    first = scene.instance(agent.instance_id)
    assert (first.evidence_sha256 is not None, second.machine_id != first.machine_id) == (True, True)
    assert second.reserved_dollars <= first.reserved_dollars - first.spent_dollars + 1e-9
    assert second.round == 2
    old, new = scene.proofs(agent.run_id, 1), scene.proofs(agent.run_id, 2)
    assert len(new) == 3
    assert not {p.witness_sha256 for p in old} & {p.witness_sha256 for p in new}
    scene.tick_until(lambda: scene.instance(second.id).state == "loading")
    next_agent = Agent(scene.context, scene.clock, agent.run_id, second.id)
    next_agent.register(scene.bootstrap_token(second.id))
    assert next_agent.registration is not None
    assert (next_agent.registration.spec.first_round, next_agent.registration.spec.proofs) == (2, 3)
    next_agent.lease("benchmark", round=2)
    next_agent.pull(round_number=2)
    for index in range(3):
        scene.clock.advance(2)
        next_agent.prove(index, 2)
    scene.tick_until(lambda: scene.run(agent.run_id).state == "passed", 20)
    assert scene.run(agent.run_id).result["verified"] == 3


def test_proofs_that_were_wanted_for_themselves_are_kept(elsewhere: Scene) -> None:
    scene = elsewhere
    key, witness = scene.upload_fixture()
    asked = {"kind": "prove", "circuit": None, "zkey_id": key, "witness_ids": [witness, witness, witness]}
    agent = scene.working(**asked)
    with scene.context.sessions() as session:
        row = scene.proofs(agent.run_id)[0]
        session.merge(row).verdict = "valid"
        session.commit()
    scene.market.show(label(scene, agent), status="stopped", stopped_why="outbid")
    look(scene)
    second = goes_on(scene, agent)
    proofs = scene.proofs(agent.run_id)
    assert [(p.verdict, p.instance_id, p.pulled_ms is None) for p in proofs] == [
        ("valid", agent.instance_id, False),
        ("", None, True),
        ("", None, True),
    ]
    scene.tick_until(lambda: scene.instance(second.id).state == "loading")
    next_agent = Agent(scene.context, scene.clock, agent.run_id, second.id)
    next_agent.register(scene.bootstrap_token(second.id))
    assert next_agent.registration is not None
    assert next_agent.registration.spec.proofs == 2
    assert [task.index for task in next_agent.pull("prove").tasks] == [1, 2]


def test_three_machines_and_no_more(elsewhere: Scene) -> None:
    scene = elsewhere
    run_id, instance_id = scene.rented()
    for machine in range(1, MAX_MACHINES + 1):
        scene.market.show(scene.instance(instance_id).label, status="loading", boot_failed="no space left")
        look(scene)
        if machine < MAX_MACHINES:
            agent = Agent(scene.context, scene.clock, run_id, instance_id)
            instance_id = goes_on(scene, agent).id
            scene.tick_until(lambda i=instance_id: scene.instance(i).state == "loading")  # type: ignore[misc]
    run = scene.run(run_id)
    assert run.state == "failed"
    assert run.reason.startswith(
        f"{MAX_MACHINES} machines were tried; the last: the machine can't start: no space left"
    )
    assert len({i.machine_id for i in scene.instances()}) == MAX_MACHINES


def test_a_run_that_asked_for_this_offer_ends_with_it(elsewhere: Scene) -> None:
    scene = elsewhere
    run_id, instance_id = scene.rented(offer_id=_seen_offer(scene))
    scene.market.show(scene.instance(instance_id).label, status="stopped", stopped_why="outbid")
    look(scene)
    assert (scene.run(run_id).state, scene.run(run_id).reason) == ("failed", "it was outbid")


def _seen_offer(scene: Scene) -> str:
    from jobs.scan import refresh

    refresh(scene.context, "local")
    return "o2"


@pytest.mark.parametrize("tail", ["", "x", "0" * 31, "0" * 33, "0" * 32 + ":1", "G" * 32, "0" * 31 + "\n"])
def test_a_label_that_only_looks_like_ours_is_not_touched(elsewhere: Scene, tail: str) -> None:
    scene = elsewhere
    agent = scene.working()
    prefix = label(scene, agent).rpartition(":")[0] + ":"
    scene.market.add(prefix + tail)
    look(scene, 4)
    assert len(scene.instances()) == 1
    assert scene.market.deleted == []


def test_one_of_ours_that_is_over_and_listed_again_is_named(elsewhere: Scene) -> None:
    scene = elsewhere
    agent = scene.working()
    assert agent.seal().accepted
    name = label(scene, agent)
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroyed", 60)
    scene.market.add(name)
    scene.tick_until(lambda: scene.market.labels == [], 60, seconds=5)
    [event] = scene.events("instance.adopted")
    assert agent.instance_id in event.reason
    assert event.run_id == agent.run_id
