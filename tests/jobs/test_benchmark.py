"""Verifying what came and giving the verdict: real proofs, forged ones, near misses, jobs twice and out of order."""

from __future__ import annotations

import random

import pytest
from sqlalchemy import select

from jobs.benchmark import benchmark
from jobs.deploy import deploy
from jobs.domain.market_models import Measurement
from jobs.domain.models import Instance
from jobs.domain.runs import cancel_run
from jobs.domain.work import take
from tests.jobs.agent import Agent
from tests.jobs.proofs import another, simulated, snarkjs
from tests.jobs.scene import Scene


def fixture_run(scene: Scene, proofs: int = 3) -> Agent:
    """A benchmark of snarkjs' own key and witness: all proofs are of the same public value."""
    key, witness = scene.upload_fixture()
    return scene.working(circuit=None, zkey_id=key, witness_ids=[witness], proofs=proofs)


def verdicts(scene: Scene, agent: Agent) -> list[str]:
    return [p.verdict for p in scene.proofs(agent.run_id)]


def test_real_proofs_pass(scene: Scene) -> None:
    agent = fixture_run(scene)
    real, public = snarkjs("proof"), snarkjs("public")
    for index, proof in enumerate([real, another(real, 2), another(real, 3)]):
        scene.clock.advance(10)
        agent.result(index, ok=True, proof=proof, public=public, machine_ms=1.0)
    benchmark(agent.instance_id, 1)
    run = scene.run(agent.run_id)
    assert (run.state, verdicts(scene, agent)) == ("passed", ["valid"] * 3)
    assert run.result["proofs_per_hour"] == 360.0  # 3 in 30 s of ours, whatever the machine says
    assert (run.result["verified"], run.result["machine_ms_mean"]) == (3, 1.0)
    assert run.result["dollars_per_proof"] == pytest.approx(0.36 * 30 / 3600 / 3)
    instance = scene.instance(agent.instance_id)
    assert (instance.state, instance.reason[:7]) == ("sealing", "passed:")
    machine = scene.machine("m-o1")
    assert (machine.proofs_per_hour, machine.measured_ms) == (360.0, scene.clock())
    assert scene.mark("m-o1") is None


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]], ids=["forward", "backward"])
@pytest.mark.parametrize("at_once", [True, False], ids=["together", "one-by-one"])
def test_a_replayed_proof_counts_once(scene: Scene, order: list[int], at_once: bool) -> None:
    agent = fixture_run(scene)
    for index in order:
        scene.clock.advance(1)
        agent.result(index, ok=True, proof=snarkjs("proof"), public=snarkjs("public"))
        if not at_once:
            benchmark(agent.instance_id, 1)
    benchmark(agent.instance_id, 1)
    assert sorted(verdicts(scene, agent)) == ["invalid", "invalid", "valid"]
    run = scene.run(agent.run_id)
    assert (run.state, scene.mark_kind("m-o1")) == ("failed", "unstable")
    assert "zero-knowledge proofs never repeat" in run.reason


def test_a_proof_of_other_values_is_no_proof(scene: Scene) -> None:
    agent = scene.working(proofs=2)
    for index in range(2):
        agent.result(index, ok=True, proof=simulated(["12345"]), public=["12345"])
    benchmark(agent.instance_id, 1)
    assert verdicts(scene, agent) == ["invalid", "invalid"]
    run = scene.run(agent.run_id)
    assert run.state == "broken"
    assert "other public values" in run.reason
    mark = scene.mark("m-o1")
    assert mark is not None
    assert (mark.kind, mark.run_id, mark.instance_id, mark.by) == ("broken", run.id, agent.instance_id, "benchmark")


def test_garbage_is_no_proof(scene: Scene) -> None:
    agent = scene.working(proofs=4)
    expected = [p.expected_public for p in scene.proofs(agent.run_id)]
    good = simulated(expected[0])
    agent.result(0, ok=True, proof={}, public=expected[0])
    agent.result(1, ok=True, proof={**good, "pi_a": ["1", "1", "1"]}, public=expected[1])
    agent.result(2, ok=True, proof=simulated(expected[0]), public=expected[2])
    agent.result(3, ok=True, proof={**good, "curve": "bn254"}, public=expected[3])
    benchmark(agent.instance_id, 1)
    assert verdicts(scene, agent) == ["invalid"] * 4
    assert all(p.reason for p in scene.proofs(agent.run_id))


def test_an_operators_bad_input_is_not_the_machines_fault(scene: Scene) -> None:
    agent = fixture_run(scene, proofs=2)
    for index in range(2):
        agent.result(index, ok=False, error="witness_refused: value 7 is not below r")
    benchmark(agent.instance_id, 1)
    assert scene.run(agent.run_id).state == "failed"
    assert scene.mark_kind("m-o1") == ""


def test_a_machine_that_refuses_our_own_input_is_broken(scene: Scene) -> None:
    agent = scene.working(proofs=2)
    for index in range(2):
        agent.result(index, ok=False, error="witness_refused: value 7 is not below r")
    benchmark(agent.instance_id, 1)
    assert (scene.run(agent.run_id).state, scene.mark_kind("m-o1")) == ("broken", "broken")


def test_fewer_valid_proofs_than_run_at_a_time(scene: Scene) -> None:
    agent = scene.working(proofs=4, concurrency=3)
    for index in range(4):
        scene.clock.advance(1)
        if index:
            agent.result(index, ok=False, error="out of memory")
        else:
            agent.prove(index)
    benchmark(agent.instance_id, 1)
    assert scene.run(agent.run_id).state == "failed"
    assert "only 1 of 4" in scene.run(agent.run_id).reason


def test_a_prover_that_was_killed(scene: Scene) -> None:
    agent = scene.working(proofs=3)
    agent.prove(0)
    agent.lease("benchmark", done=1, total=3, ended=True, signal="SIGKILL")
    benchmark(agent.instance_id, 1)
    assert (scene.run(agent.run_id).state, scene.mark_kind("m-o1")) == ("failed", "")
    assert "killed by SIGKILL after 1 of 3" in scene.run(agent.run_id).reason


def test_it_waits_until_all_has_come(scene: Scene) -> None:
    agent = scene.working(proofs=2)
    agent.prove(0)
    benchmark(agent.instance_id, 1)
    assert (scene.run(agent.run_id).state, verdicts(scene, agent)) == ("active", ["valid", ""])
    assert scene.instance(agent.instance_id).claim_token is None
    agent.prove(1)
    benchmark(agent.instance_id, 2)
    assert scene.run(agent.run_id).state == "passed"


def test_slow_is_remembered_with_its_rate(scene: Scene) -> None:
    agent = scene.working(proofs=2, min_proofs_per_hour=10_000)
    for index in range(2):
        scene.clock.advance(10)
        agent.prove(index)
    benchmark(agent.instance_id, 1)
    assert (scene.run(agent.run_id).state, scene.mark_kind("m-o1")) == ("slow", "slow")
    assert scene.machine("m-o1").proofs_per_hour == 360.0
    assert scene.instance(agent.instance_id).state == "sealing"


def near_miss(scene: Scene, agent: Agent, round_number: int) -> None:
    for index, pause in enumerate((5, 15, 5, 15)):
        scene.clock.advance(pause)
        agent.prove(index, round_number)
    agent.lease("benchmark", round=round_number, done=4, total=4, ended=True, exit_code=0)
    benchmark(agent.instance_id, 1)


def test_a_near_miss_gets_exactly_one_more_round(scene: Scene) -> None:
    agent = scene.working(proofs=4, min_proofs_per_hour=370.0)
    near_miss(scene, agent, 1)
    assert scene.run(agent.run_id).state == "active"
    assert scene.instance(agent.instance_id).round == 2
    first, second = (scene.proofs(agent.run_id, n) for n in (1, 2))
    assert len(second) == 4
    assert not {p.witness_sha256 for p in first} & {p.witness_sha256 for p in second}
    # The job twice more, and the last progress of round 1 once more: nothing changes.
    benchmark(agent.instance_id, 2)
    commands = agent.lease("benchmark", done=4, total=4, ended=True).commands
    assert [(c.name, c.round) for c in commands] == [("round", 2)]
    benchmark(agent.instance_id, 3)
    assert (scene.run(agent.run_id).state, scene.instance(agent.instance_id).round) == ("active", 2)
    assert len(scene.proofs(agent.run_id, 2)) == 4
    agent.lease("benchmark", round=2)
    assert agent.lease("benchmark", round=2).commands == []
    agent.pull(round_number=2)
    near_miss(scene, agent, 2)
    run = scene.run(agent.run_id)
    assert run.state == "slow"
    assert run.result["window_s"] == 40.0  # of its own round
    assert len(scene.events("benchmark.again")) == 1


def test_a_second_round_that_is_fast_passes(scene: Scene) -> None:
    agent = scene.working(proofs=4, min_proofs_per_hour=370.0)
    near_miss(scene, agent, 1)
    agent.lease("benchmark", round=2)
    agent.pull(round_number=2)
    for index in range(4):
        scene.clock.advance(5)
        agent.prove(index, 2)
    benchmark(agent.instance_id, 9)
    assert scene.run(agent.run_id).state == "passed"


def test_a_verdict_after_a_late_cancel_changes_nothing(scene: Scene) -> None:
    agent = scene.working(proofs=1)
    agent.prove(0)
    assert cancel_run(scene.context, agent.run_id, "anna", "no")
    benchmark(agent.instance_id, 1)
    assert scene.run(agent.run_id).state == "cancelled"
    assert verdicts(scene, agent) == [""]


def test_a_cancel_after_the_verdict_changes_nothing(scene: Scene) -> None:
    agent = scene.working(proofs=1)
    scene.clock.advance(1)
    agent.prove(0)
    benchmark(agent.instance_id, 1)
    assert not cancel_run(scene.context, agent.run_id, "anna", "no")
    benchmark(agent.instance_id, 2)
    assert scene.run(agent.run_id).state == "passed"
    assert [e.new for e in scene.events("run.state") if e.run_id == agent.run_id] == ["active", "passed"]


def test_a_worker_that_comes_back_after_its_claim_changes_nothing(scene: Scene) -> None:
    from jobs import benchmark as module

    agent = scene.working(proofs=1)
    scene.clock.advance(1)
    agent.prove(0)
    held = take(scene.context, Instance, agent.instance_id, ("benchmarking",))
    assert held is not None
    scene.clock.advance(60)
    benchmark(agent.instance_id, 2)  # its successor gives the verdict
    before = scene.run(agent.run_id), scene.instance(agent.instance_id), len(scene.events())
    module._settle(scene.context, held[0], agent.instance_id)
    after = scene.run(agent.run_id), scene.instance(agent.instance_id), len(scene.events())
    assert before[0].result == after[0].result
    assert (before[1].state, before[1].claim_token, before[2]) == (after[1].state, after[1].claim_token, after[2])


@pytest.mark.parametrize("seed", range(2))
def test_jobs_twice_and_in_any_order_leave_the_same(scene: Scene, seed: int) -> None:
    """At-least-once delivery: every job of every attempt, shuffled, again and again."""
    from jobs.collect import collect_logs
    from jobs.destroy import destroy
    from jobs.prepare import prepare

    dice = random.Random(seed)
    agent = scene.working(proofs=2)

    def storm() -> None:
        jobs = [
            (prepare, agent.run_id), (deploy, agent.instance_id), (benchmark, agent.instance_id),
            (collect_logs, agent.instance_id), (destroy, agent.instance_id),
        ] * 2  # fmt: skip
        dice.shuffle(jobs)
        for job, row_id in jobs:
            job(row_id, dice.randrange(5))
        scene.clock.advance(2)

    storm()
    agent.ship("bench", "one\n")
    scene.clock.advance(3)
    agent.prove(0)
    storm()
    agent.prove(1)
    storm()
    agent.seal()
    for _ in range(8):
        storm()
    instance = scene.instance(agent.instance_id)
    assert (scene.run(agent.run_id).state, instance.state, instance.evidence) == ("passed", "destroyed", "complete")
    moves = [e.new for e in scene.events("instance.state")]
    assert moves == ["loading", "fetching", "benchmarking", "ready", "sealing", "destroying", "destroyed"]
    assert (len(scene.market.sold), scene.market.labels) == (1, [])


@pytest.mark.parametrize(("minimum", "state", "mark"), [(100.0, "passed", ""), (1_000.0, "slow", "slow")])
def test_a_decided_benchmark_stops_early(scene: Scene, minimum: float, state: str, mark: str) -> None:
    agent = scene.working(proofs=9, min_proofs_per_hour=minimum)
    for index in range(9):
        scene.clock.advance((10, 11, 9)[index % 3])
        agent.prove(index)
        benchmark(agent.instance_id, index)
        if scene.run(agent.run_id).state != "active":
            break
    run = scene.run(agent.run_id)
    assert (run.state, scene.mark_kind("m-o1")) == (state, mark)
    assert 4 <= index + 1 < 9
    assert run.reason.startswith(f"stopped early after {index + 1} of 9: decided")
    assert (run.result["verified"], run.result["proofs"], run.result["stopped_early"]) == (index + 1, 9, True)
    assert scene.instance(agent.instance_id).state == "sealing"
    (told,) = scene.events("benchmark.early")
    assert told.data["proofs"] == 9 - index - 1
    assert told.data["dollars"] == pytest.approx(told.data["seconds"] * 0.36 / 3600)
    # What was still under way comes too late, and changes nothing.
    agent.prove(8)
    benchmark(agent.instance_id, 99)
    assert (scene.run(agent.run_id).result, verdicts(scene, agent)[8]) == (run.result, "")


@pytest.mark.parametrize("fields", [{}, {"min_proofs_per_hour": 360.0}], ids=["no minimum", "too close"])
def test_an_open_benchmark_goes_on(scene: Scene, fields: dict[str, float]) -> None:
    agent = scene.working(proofs=7, **fields)
    for index in range(6):
        scene.clock.advance((10, 11, 9)[index % 3])
        agent.prove(index)
        benchmark(agent.instance_id, index)
    assert scene.run(agent.run_id).state == "active"


def test_one_bad_proof_and_nothing_is_decided_early(scene: Scene) -> None:
    agent = scene.working(proofs=9, min_proofs_per_hour=1.0)
    agent.result(0, ok=False, error="out of memory")
    for index in range(1, 8):
        scene.clock.advance(10)
        agent.prove(index)
        benchmark(agent.instance_id, index)
    assert scene.run(agent.run_id).state == "active"


def test_a_measurement_is_kept_with_what_was_paid_before(scene: Scene) -> None:
    run_id, instance_id = scene.rented(proofs=2)
    scene.clock.advance(40)
    agent = Agent(scene.context, scene.clock, run_id, instance_id).register(scene.bootstrap_token(instance_id))
    scene.clock.advance(25)
    agent.lease("benchmark")
    agent.pull()
    for index in range(2):
        scene.clock.advance(10)
        agent.prove(index)
    benchmark(instance_id, 1)
    with scene.context.sessions() as session:
        kept = session.scalars(select(Measurement)).one()
    assert (kept.machine_id, kept.instance_id, kept.run_id) == ("m-o1", instance_id, run_id)
    assert (kept.proofs_per_hour, kept.proofs, kept.boot_s, kept.params_s) == (360.0, 2, 40.0, 25.0)
    assert kept.work.startswith("groth16/bls12381/")
    assert kept.specs["key_bytes"] == 1000
