"""The ledger of decisions: every rule's, with its figures, asked again by today's rules and by changed ones."""

from __future__ import annotations

from jobs.domain.db import writing
from jobs.domain.models import Event, Instance, Proof
from jobs.story.decisions import GIVEN_UP, VERDICT, Changed, Decision, decisions
from tests.jobs.rows import new_instance, new_run
from tests.jobs.scene import T0, Scene


def ledger(scene: Scene, changed: Changed | None = None, rule: str = "") -> list[Decision]:
    with scene.context.sessions() as session:
        return decisions(session, T0 - 1, scene.clock(), changed or Changed(), rule, 100)


def measured(scene: Scene, minimum: float | None) -> None:
    """Two proofs in 20 s: 360 an hour."""
    agent = scene.working(proofs=2, min_proofs_per_hour=minimum)
    for index in range(2):
        scene.clock.advance(10)
        agent.prove(index)
    scene.tick_until(lambda: scene.run(agent.run_id).ended_ms is not None)


def test_a_verdict_is_asked_again_and_replayed(scene: Scene) -> None:
    measured(scene, 300.0)
    (found,) = ledger(scene, rule=VERDICT)
    assert (found.decided, found.now, found.differs) == ("passed", "passed", False)
    assert found.inputs["valid"] == "2 of 2"
    assert found.inputs["minimum"] == "300.0/h"
    (tried,) = ledger(scene, Changed(min_proofs_per_hour=500.0), VERDICT)
    assert (tried.now, tried.differs) == ("slow", True)
    assert not ledger(scene, Changed(min_proofs_per_hour=359.0), VERDICT)[0].differs


def test_a_silent_machine_is_given_up_and_a_longer_limit_would_wait(scene: Scene) -> None:
    agent = scene.working()
    with writing(scene.context.sessions) as session:
        session.get_one(Instance, agent.instance_id).lease_expires_ms = scene.clock() + 10**9
    scene.tick(899)
    assert not ledger(scene, rule=GIVEN_UP)
    scene.tick(3)
    (found,) = ledger(scene, rule=GIVEN_UP)
    assert "has not moved for" in found.text
    assert found.inputs["allowed"] == "0:15:00"
    assert not found.differs
    assert found.at_most
    assert found.saved_dollars is not None
    assert found.saved_dollars > 0
    (tried,) = ledger(scene, Changed(silent_s=1800.0), GIVEN_UP)
    assert tried.now == "waits until 0:30:00"
    assert tried.differs
    assert not ledger(scene, Changed(deadline_s=1.0), GIVEN_UP)[0].differs


def test_an_orphan_is_a_decision_that_is_not_asked_again(scene: Scene) -> None:
    _, instance_id = scene.rented()
    with writing(scene.context.sessions) as session:
        row = session.get_one(Instance, instance_id)
        row.state, row.ended_ms = "destroyed", scene.clock()
    scene.tick_until(lambda: bool(scene.events("instance.adopted")))
    (found,) = ledger(scene, rule="orphan")
    assert (found.now, found.saved_dollars, found.differs) == ("", None, False)


def test_an_early_stop_says_what_it_saved_and_whether_it_would_stop_again(scene: Scene) -> None:
    """Eight proofs, one each 5 s or so: 720 an hour."""
    asked = {"min_proofs_per_hour": 300.0, "proofs": 12, "concurrency": 1}
    run = new_run(scene.context, state="passed", result={"stopped_early": True, "verified": 8, "proofs": 12}, **asked)
    machine = new_instance(scene.context, run_id=run.id, state="destroyed")
    with writing(scene.context.sessions) as session:
        for i in range(8):
            came = {"pulled_ms": T0, "received_ms": T0 + 5000 * (i + 1) + 90 * (i % 3), "verdict": "valid"}
            what = {"witness_key": "w", "witness_sha256": "", "witness_bytes": 1, "expected_public": []}
            session.add(Proof(run_id=run.id, instance_id=machine.id, round=1, index=i, **came, **what))
        told = {"at_ms": T0 + 50_000, "run_id": run.id, "actor": "benchmark"}
        session.add(Event(**told, kind="run.state", old="active", new="passed", reason="stopped early after 8 of 12"))
        data = {"proofs": 4, "seconds": 20.0, "dollars": 0.002}
        session.add(Event(**told, instance_id=machine.id, kind="benchmark.early", reason="4 proofs", data=data))
    early, verdict = ledger(scene)
    assert (early.rule, early.saved_dollars, early.at_most) == ("early stop", 0.002, False)
    assert (verdict.decided, verdict.now) == ("passed", "passed")
    tried = {rate: ledger(scene, Changed(min_proofs_per_hour=rate), VERDICT)[0].now for rate in (400.0, 700.0, 5000.0)}
    assert tried == {400.0: "passed", 700.0: "measures on", 5000.0: "slow"}
