"""What a machine may do to the truth: registering, leases, tasks, results, sealing; all of it hostile until checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpu.protocol import Lease, Progress, Register, Seal, StreamEnd
from jobs.domain import agents
from jobs.domain.agents import AgentRefused, sha256_of
from jobs.domain.runs import cancel_run
from tests.jobs.proofs import simulated
from tests.jobs.scene import Scene

NASTY = "boom\x00\ud800 <script>"


def refused(code: str, call: Callable[[], Any]) -> AgentRefused:
    with pytest.raises(AgentRefused) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def test_registering_hands_out_a_token_and_the_spec(scene: Scene) -> None:
    agent = scene.registered(proofs=3, concurrency=2, partition_workers=4, lease_s=60)
    assert agent.registration is not None
    spec = agent.registration.spec
    assert (spec.run, spec.instance, spec.stages) == (agent.run_id, agent.instance_id, ["params", "benchmark"])
    assert (spec.proofs, spec.concurrency, spec.partition_workers, agent.registration.lease_s) == (3, 2, 4, 60.0)
    assert spec.params[0].url.startswith("http")
    assert "3" in spec.commands["benchmark"].command
    instance = scene.instance(agent.instance_id)
    assert (instance.state, instance.stage, instance.facts["cpu"]) == ("fetching", "params", "test")
    assert instance.token_sha256 == sha256_of(agent.token)
    assert agent.token not in str(vars(instance))
    assert instance.lease_expires_ms == scene.clock() + 60_000


def test_who_is_not_known_does_not_register(scene: Scene) -> None:
    _, instance_id = scene.placed()
    message = Register(facts={}, agent_version="1")
    assert refused("unknown_token", lambda: agents.register(scene.context, "guess", message)).status == 401
    assert refused("unknown_token", lambda: agents.register(scene.context, "\ud800", message)).status == 401
    # The machine is up before its rental is written down.
    early: list[AgentRefused] = []
    scene.market.on(
        "rent",
        "after",
        lambda: early.append(
            refused(
                "not_yet",
                lambda: agents.register(scene.context, scene.bootstrap_token(instance_id), message),
            )
        ),
    )
    from jobs.deploy import deploy

    deploy(instance_id, 1)
    assert early[0].status == 503
    agents.register(scene.context, scene.bootstrap_token(instance_id), message)


def test_registering_twice_replaces_the_token_until_a_stage_began(scene: Scene) -> None:
    agent = scene.registered()
    old = agent.token
    agent.register(scene.bootstrap_token(agent.instance_id))
    assert refused("unknown_token", lambda: agents.lease(scene.context, old, Lease(Progress("params")))).status == 401
    agent.lease("benchmark")
    boot = scene.bootstrap_token(agent.instance_id)
    assert refused("past_registering", lambda: agent.register(boot)).status == 409


def test_facts_are_bounded_and_plain_json(scene: Scene) -> None:
    _, instance_id = scene.rented()
    boot = scene.bootstrap_token(instance_id)

    def register(facts: dict[str, Any]) -> Any:
        return agents.register(scene.context, boot, Register(facts=facts, agent_version="1", image_digest=NASTY))

    assert refused("too_large", lambda: register({"x": "y" * 70_000})).status == 413
    assert refused("bad_message", lambda: register({"x": float("nan")})).status == 400
    register({"model": NASTY})
    assert scene.instance(instance_id).image_ran.startswith("boom")


def test_a_lease_renews_and_gives_orders(scene: Scene) -> None:
    agent = scene.registered(lease_s=60)
    scene.clock.advance(20)
    leased = agent.lease()
    assert (leased.lease_s, leased.commands, leased.next_s) == (60.0, [], 1.0)
    assert leased.emergency is not None
    assert leased.emergency.expires_s >= 660
    assert scene.instance(agent.instance_id).lease_expires_ms == scene.clock() + 60_000
    agent.lease("benchmark")
    assert scene.instance(agent.instance_id).state == "benchmarking"
    assert cancel_run(scene.context, agent.run_id, "anna", "enough")
    assert [(c.name, c.reason) for c in agent.lease("benchmark").commands] == [("seal", "run cancelled: enough")]
    agent.seal()
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroying")
    assert [c.name for c in agent.lease("sealing").commands] == ["exit"]
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroyed")
    refused("unknown_token", agent.lease)


def test_only_what_advances_counts_as_moving(scene: Scene) -> None:
    agent = scene.working(proofs=5)
    moved = scene.instance(agent.instance_id).moved_ms
    scene.clock.advance(5)
    agent.lease("benchmark", moved_ms=scene.clock())
    assert scene.instance(agent.instance_id).moved_ms in (moved, scene.clock())
    moved = scene.instance(agent.instance_id).moved_ms
    scene.clock.advance(5)
    agent.lease("benchmark", moved_ms=scene.clock())
    assert scene.instance(agent.instance_id).moved_ms == moved
    agent.lease("benchmark", done=1, total=5)
    assert scene.instance(agent.instance_id).moved_ms == scene.clock()


def test_stages_only_go_forward(scene: Scene) -> None:
    agent = scene.working()
    for stage in ("params", "serve", "sealing", "nonsense", "prove"):
        agent.lease(stage)
        assert scene.instance(agent.instance_id).state == "benchmarking"


def test_a_stage_that_fails_before_the_work_ends_the_run(scene: Scene) -> None:
    agent = scene.registered()
    agent.lease("params", ended=True, error=f"the key's hash is wrong {NASTY}")
    assert scene.run(agent.run_id).state == "failed"
    assert scene.run(agent.run_id).reason.startswith("params: the key's hash is wrong")
    assert scene.instance(agent.instance_id).state == "sealing"


def test_the_clock_of_a_round_starts_at_the_first_pull(scene: Scene) -> None:
    agent = scene.registered(proofs=3)
    agent.lease("benchmark")
    first = scene.clock()
    pulled = agent.pull()
    assert [task.index for task in pulled.tasks] == [0, 1, 2]
    assert len({task.witness.sha256 for task in pulled.tasks}) == 3
    scene.clock.advance(30)
    assert [t.index for t in agent.pull().tasks] == [0, 1, 2]
    assert {p.pulled_ms for p in scene.proofs(agent.run_id)} == {first}


def test_tasks_are_given_only_for_the_round_that_runs(scene: Scene) -> None:
    agent = scene.registered()
    assert refused("not_now", lambda: agent.pull("prove", 1)).status == 409
    assert scene.instance(agent.instance_id).state == "fetching"  # the refused call changed nothing
    refused("not_now", lambda: agent.pull("benchmark", 2))
    refused("not_now", lambda: agent.pull("params"))
    agent.pull("benchmark")  # also without a lease before
    assert scene.instance(agent.instance_id).state == "benchmarking"


def test_the_first_result_counts(scene: Scene) -> None:
    agent = scene.working()
    agent.prove(0)
    first = scene.proofs(agent.run_id)[0]
    scene.clock.advance(9)
    agent.prove(0)
    agent.result(0, ok=False, error="no")
    again = scene.proofs(agent.run_id)[0]
    assert (again.received_ms, again.proof, again.verdict) == (first.received_ms, first.proof, "")
    assert scene.instance(agent.instance_id).wake_at_ms is not None


@pytest.mark.parametrize(("index", "round_number"), [(2, 1), (-1, 1), (0, 2), (2**62, 1), (0, -(2**62))])
def test_results_that_nobody_asked_for(scene: Scene, index: int, round_number: int) -> None:
    agent = scene.working(proofs=2)
    refused("no_task", lambda: agent.result(index, round_number, ok=False, error="x"))


def test_a_result_before_the_pull_is_refused(scene: Scene) -> None:
    agent = scene.registered()
    agent.lease("benchmark")
    refused("no_task", lambda: agent.result(0, ok=False, error="x"))


def test_a_machine_can_only_answer_for_its_own_run(scene: Scene) -> None:
    scene.market.offer("o1")
    scene.market.offer("o2")
    one, two = scene.working(proofs=1), scene.working(proofs=2)
    refused("no_task", lambda: one.result(1, ok=False, error="x"))
    one.result(0, ok=False, error="x")
    assert scene.proofs(two.run_id)[0].received_ms is None


def test_results_are_bounded_and_clean(scene: Scene) -> None:
    agent = scene.working()
    assert refused("bad_message", lambda: agent.result(0, ok=True, proof={})).status == 400
    huge = {"pi_a": ["1" * 70_000]}
    assert refused("too_large", lambda: agent.result(0, ok=True, proof=huge, public=["1"])).status == 413
    not_json = {"pi_a": [float("inf")]}
    assert refused("bad_message", lambda: agent.result(0, ok=True, proof=not_json, public=["1"])).status == 400
    agent.result(0, ok=False, error=NASTY + "x" * 9000)
    proof = scene.proofs(agent.run_id)[0]
    assert proof.verdict == "error"
    assert proof.reason.startswith("boom")
    assert len(proof.reason) <= 2000
    agent.result(1, ok=True, proof={"note": NASTY}, public=[NASTY])
    assert scene.proofs(agent.run_id)[1].received_ms is not None


def test_results_that_come_too_late_change_nothing(scene: Scene) -> None:
    agent = scene.working()
    assert cancel_run(scene.context, agent.run_id, "anna", "no")
    agent.result(0, ok=True, proof=simulated(["1"]), public=["1"])
    assert scene.proofs(agent.run_id)[0].received_ms is None


def test_sealing_waits_for_every_chunk(scene: Scene) -> None:
    agent = scene.working()
    agent.ship("bench", "one\n")
    record, frame = agent.cut("bench", "two\n")
    agent.cut("setup", "never shipped\n")
    assert cancel_run(scene.context, agent.run_id, "anna", "no")
    sealed = agent.seal()
    assert (sealed.accepted, sealed.missing) == (False, {"bench": 1, "setup": 0})
    assert scene.instance(agent.instance_id).agent_manifest is None
    agent.send("bench", record, frame)
    assert agent.seal().missing == {"setup": 0}


def test_sealing_twice_keeps_the_first_manifest(scene: Scene) -> None:
    agent = scene.working()
    assert cancel_run(scene.context, agent.run_id, "anna", "no")
    assert agent.seal("first").accepted
    assert agent.seal("second").accepted
    manifest = scene.instance(agent.instance_id).agent_manifest
    assert manifest is not None
    assert manifest["reason"] == "first"
    assert len(scene.events("agent.sealed")) == 1


def test_an_agent_that_seals_by_itself_ends_its_run(scene: Scene) -> None:
    agent = scene.working()
    assert agent.seal(f"its own time was up {NASTY}").accepted
    assert scene.run(agent.run_id).state == "failed"
    assert "its own time was up" in scene.run(agent.run_id).reason
    assert scene.instance(agent.instance_id).state == "sealing"


def test_a_manifest_is_bounded(scene: Scene) -> None:
    agent = scene.working()
    streams = {f"s{i}": StreamEnd(0, 0, 0, "x" * 1000) for i in range(100)}
    assert (
        refused("too_large", lambda: agents.seal(scene.context, agent.token, Seal(streams, {}, {}, {}))).status == 413
    )


def test_a_proving_run_goes_through_ready(scene: Scene) -> None:
    key, witness = scene.upload_fixture()
    agent = scene.registered(kind="prove", circuit=None, zkey_id=key, witness_ids=[witness])
    agent.lease("prove")
    moves = [e.new for e in scene.events("instance.state") if e.instance_id == agent.instance_id]
    assert moves == ["loading", "fetching", "ready", "proving"]
    assert [t.index for t in agent.pull().tasks] == [0]
