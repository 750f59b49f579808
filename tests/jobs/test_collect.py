"""Sealing the evidence: complete, with gaps, of a machine that vanished; the archive down; a worker that dies."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from jobs import collect
from jobs.collect import collect_logs
from jobs.context import Context, use
from jobs.domain.agents import AgentRefused
from jobs.domain.models import Artifact, Instance
from jobs.domain.runs import cancel_run
from logs.emergency import pack_emergency
from logs.errors import NoSuchObject
from logs.wire import bundle_key, emergency_key, manifest_key
from tests.fakes.market import lost
from tests.jobs.agent import Agent
from tests.jobs.scene import Scene


def stopped(scene: Scene, lines: int = 2, **fields: Any) -> Agent:
    """A machine whose run was called off: it may still ship and seal."""
    agent = scene.working(**fields)
    for n in range(lines):
        agent.ship("bench", f"line {n}\n")
    assert cancel_run(scene.context, agent.run_id, "anna", "no")
    return agent


def bundle(scene: Scene, agent: Agent) -> zipfile.ZipFile:
    data = scene.context.store.get(bundle_key(agent.run_id, agent.instance_id), 1 << 24)
    assert hashlib.sha256(data).hexdigest() == scene.instance(agent.instance_id).evidence_sha256
    return zipfile.ZipFile(io.BytesIO(data))


def manifest(scene: Scene, agent: Agent) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(bundle(scene, agent).read("manifest.json"))
    return loaded


def test_complete(scene: Scene) -> None:
    agent = scene.working(proofs=1)
    agent.ship("bench", "one\ntwo\n")
    agent.artifact("timings/machine.json", b"{}")
    scene.clock.advance(2)
    agent.prove(0)
    assert cancel_run(scene.context, agent.run_id, "anna", "no")
    assert agent.seal().accepted
    collect_logs(agent.instance_id, 1)
    instance = scene.instance(agent.instance_id)
    assert (instance.state, instance.evidence, instance.evidence_gap) == ("destroying", "complete", None)
    assert instance.evidence_text == "complete, 2 lines in 1 stream"
    zipped = bundle(scene, agent)
    assert zipped.read("streams/bench.log") == b"one\ntwo\n"
    assert b"says hello" in zipped.read("artifacts/provider.log")
    assert "artifacts/timings/machine.json" in zipped.namelist()
    told = json.loads(zipped.read("artifacts/proofs.json"))
    assert told[0]["proof"]["protocol"] == "groth16"
    # Witnesses are never part of evidence.
    assert not [name for name in zipped.namelist() if "wtns" in name or "witness" in name]
    said = manifest(scene, agent)
    assert said["exit_codes"] == {"bench": 0}
    assert [stage["new"] for stage in said["stages"]][-1] == "sealing"
    # Once more, as a job delivered twice: nothing to do.
    collect_logs(agent.instance_id, 2)
    assert scene.instance(agent.instance_id).evidence_sha256 == instance.evidence_sha256


def test_it_waits_for_the_agent_until_the_deadline(scene: Scene) -> None:
    agent = stopped(scene)
    scene.tick(10, times=11)
    agent.lease("sealing")
    scene.tick(times=8)
    assert scene.instance(agent.instance_id).state == "sealing"
    scene.tick_until(lambda: scene.instance(agent.instance_id).state != "sealing", 10)
    instance = scene.instance(agent.instance_id)
    assert (instance.evidence, instance.vanished_ms) == ("gaps", None)
    assert "did not confirm the end" in instance.evidence_text
    assert bundle(scene, agent).read("streams/bench.log") == b"line 0\nline 1\n"


def test_a_tail_that_was_lost_is_named(scene: Scene) -> None:
    agent = stopped(scene)
    agent.cut("bench", "never\nshipped\n")
    assert not agent.seal().accepted
    with scene.context.sessions() as session:
        session.get_one(Instance, agent.instance_id).agent_manifest = agent.manifest().to_json()
        session.commit()
    collect_logs(agent.instance_id, 1)
    assert "lines 3-4 missing" in scene.instance(agent.instance_id).evidence_text
    assert scene.instance(agent.instance_id).evidence == "gaps"


def test_a_machine_that_never_registered_leaves_what_the_provider_kept(scene: Scene) -> None:
    run_id, instance_id = scene.rented()
    assert cancel_run(scene.context, run_id, "anna", "no")
    collect_logs(instance_id, 1)
    agent = Agent(scene.context, scene.clock, run_id, instance_id)
    assert scene.instance(instance_id).state == "destroying"
    assert b"says hello" in bundle(scene, agent).read("artifacts/provider.log")


def test_a_machine_that_ended_is_said_to_have_vanished(scene: Scene) -> None:
    agent = stopped(scene)
    scene.market.exit(scene.instance(agent.instance_id).label)
    collect_logs(agent.instance_id, 1)
    instance = scene.instance(agent.instance_id)
    assert (instance.evidence, instance.vanished_ms) == ("vanished", scene.clock())
    assert instance.evidence_text.startswith("machine vanished at ")


@pytest.mark.parametrize("how", ["unlisted", "empty", "partial", "unavailable", "unknown"])
def test_what_is_no_proof_that_it_ended(scene: Scene, how: str) -> None:
    """Not listed before our DELETE means unknown, never gone: it may still be shipping."""
    agent = stopped(scene)
    label = scene.instance(agent.instance_id).label
    if how == "unlisted":
        scene.market.lose(label)
    elif how == "empty":
        scene.market.empty = True
    elif how == "partial":
        scene.market.complete = False
    elif how == "unavailable":
        scene.market.on("list", "before", lost)
    else:
        scene.market.set_status(label, "unknown")
    collect_logs(agent.instance_id, 1)
    assert scene.instance(agent.instance_id).state == "sealing"
    assert scene.instance(agent.instance_id).vanished_ms is None
    agent.ship("bench", "the tail\n")
    assert agent.seal().accepted
    scene.clock.advance(2)
    collect_logs(agent.instance_id, 2)
    assert scene.instance(agent.instance_id).evidence == "complete"


def emergency(scene: Scene, agent: Agent, *chunks: tuple[str, Any, bytes]) -> None:
    out = io.BytesIO()
    pack_emergency(out, agent.manifest("controller gone").to_json(), [*agent.shipped, *chunks])
    scene.context.store.put(emergency_key(agent.run_id, agent.instance_id), out.getvalue())


@pytest.mark.parametrize("listed", [True, False], ids=["exited", "destroyed-itself"])
def test_what_an_agent_uploaded_by_itself_is_adopted(scene: Scene, listed: bool) -> None:
    agent = stopped(scene)
    emergency(scene, agent, ("bench", *agent.cut("bench", "last words\n")))
    label = scene.instance(agent.instance_id).label
    scene.market.exit(label) if listed else scene.market.lose(label)
    scene.tick_until(lambda: scene.instance(agent.instance_id).state != "sealing", 5, seconds=40)
    assert bundle(scene, agent).read("streams/bench.log").endswith(b"last words\n")
    assert scene.instance(agent.instance_id).evidence == "complete"
    assert [e.kind for e in scene.events() if e.kind.startswith("emergency")] == ["emergency.adopted"]


@pytest.mark.parametrize("gpus", ["many", 7, [1, None, "x"], [{"name": {"a": 1}}], {"0": "x"}], ids=str)
def test_facts_of_a_machine_that_make_no_sense_hold_up_no_seal(scene: Scene, gpus: Any) -> None:
    agent = stopped(scene)
    with scene.context.sessions() as session:
        session.get_one(Instance, agent.instance_id).facts = {"gpus": gpus, "cpu": None, "[provider]\n": "x"}
        session.commit()
    assert agent.seal().accepted
    collect_logs(agent.instance_id, 1)
    instance = scene.instance(agent.instance_id)
    assert (instance.state, instance.evidence) == ("destroying", "complete")


def test_nor_does_the_manifest_of_an_emergency_upload(scene: Scene) -> None:
    agent = stopped(scene)
    out = io.BytesIO()
    pack_emergency(out, {"streams": 3, "exit_codes": [1, 2], "signals": "KILL", "stages_ms": None}, agent.shipped)
    scene.context.store.put(emergency_key(agent.run_id, agent.instance_id), out.getvalue())
    scene.market.exit(scene.instance(agent.instance_id).label)
    scene.tick_until(lambda: scene.instance(agent.instance_id).state != "sealing", 5, seconds=40)
    assert scene.instance(agent.instance_id).evidence_sha256
    assert manifest(scene, agent)["exit_codes"] == {}


@pytest.mark.parametrize("bad", [b"", b"not a zip", b"PK\x05\x06" + b"\0" * 18])
def test_an_emergency_upload_that_is_no_good(scene: Scene, bad: bytes) -> None:
    agent = stopped(scene)
    scene.context.store.put(emergency_key(agent.run_id, agent.instance_id), bad)
    scene.market.exit(scene.instance(agent.instance_id).label)
    collect_logs(agent.instance_id, 1)
    assert scene.instance(agent.instance_id).evidence == "vanished"
    assert len(scene.events("emergency.refused")) == 1


def test_the_archive_is_down_for_a_minute(scene: Scene, make_context: Callable[..., Context]) -> None:
    agent = stopped(scene)
    assert agent.seal().accepted
    without_archive(scene, make_context, agent, 60)
    assert scene.instance(agent.instance_id).state == "sealing"
    assert scene.events("archive.unavailable")
    collect_logs(agent.instance_id, 9)
    assert scene.instance(agent.instance_id).evidence == "complete"


def without_archive(scene: Scene, make_context: Callable[..., Context], agent: Agent, seconds: int) -> None:
    use(make_context(s3_endpoint="http://127.0.0.1:1", s3_secret_access_key=SecretStr("x")))
    for _ in range(0, seconds, 10):
        scene.clock.advance(10)
        collect_logs(agent.instance_id, 1)
    use(scene.context)


def test_the_archive_is_down_for_longer_than_the_lease(scene: Scene, make_context: Callable[..., Context]) -> None:
    agent = stopped(scene, lease_s=30)
    assert agent.seal().accepted
    without_archive(scene, make_context, agent, 40)
    instance = scene.instance(agent.instance_id)
    assert (instance.state, instance.evidence, instance.evidence_sha256) == ("destroying", "gaps", None)
    assert "could not be reached for 30 s" in (instance.evidence_gap or "")


def crash_before_sql(scene: Scene, agent: Agent) -> None:
    """All that `collect_logs` does up to its commit, whose worker then dies."""
    with pytest.MonkeyPatch.context() as patch:  # no other way to die between two of our own calls
        patch.setattr(collect, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            collect_logs(agent.instance_id, 1)
    scene.clock.advance(20)


def test_a_worker_that_dies_between_bundle_and_commit(scene: Scene) -> None:
    """The second one seals the same bundle, though the machine went on shipping and the provider's log is gone."""
    agent = stopped(scene)
    late = agent.cut("bench", "late\n")
    collect_logs(agent.instance_id, 1)  # the provider's logs are asked for; the agent has its time
    scene.clock.advance(121)
    crash_before_sql(scene, agent)
    store = scene.context.store
    first = store.get(bundle_key(agent.run_id, agent.instance_id), 1 << 24)
    # What the manifest does not name is not acknowledged: it would be in the archive, and not in the evidence.
    with pytest.raises(AgentRefused, match="sealed"):
        agent.send("bench", *late)
    with pytest.raises(AgentRefused, match="sealed"):
        agent.artifact("late.txt", b"late")
    scene.market.lose(scene.instance(agent.instance_id).label)
    scene.clock.advance(130)
    collect_logs(agent.instance_id, 2)
    instance = scene.instance(agent.instance_id)
    assert (instance.state, instance.evidence_sha256) == ("destroying", hashlib.sha256(first).hexdigest())
    assert store.get(bundle_key(agent.run_id, agent.instance_id), 1 << 24) == first
    assert b"says hello" in bundle(scene, agent).read("artifacts/provider.log")


def test_a_worker_that_dies_between_manifest_and_bundle(scene: Scene) -> None:
    agent = stopped(scene)
    assert agent.seal().accepted
    crash_before_sql(scene, agent)
    store = scene.context.store
    kept = store.get(manifest_key(agent.run_id, agent.instance_id), 1 << 24)
    store.delete(bundle_key(agent.run_id, agent.instance_id))
    collect_logs(agent.instance_id, 2)
    assert store.get(manifest_key(agent.run_id, agent.instance_id), 1 << 24) == kept
    assert json.loads(kept) == manifest(scene, agent)
    assert scene.instance(agent.instance_id).evidence == "complete"


def test_the_controllers_own_files_win_over_a_machines(scene: Scene) -> None:
    agent = scene.working(proofs=1)
    agent.artifact("proofs.json", b'["forged"]')
    agent.prove(0)
    assert cancel_run(scene.context, agent.run_id, "anna", "no")
    assert agent.seal().accepted
    collect_logs(agent.instance_id, 1)
    told = json.loads(bundle(scene, agent).read("artifacts/proofs.json"))
    assert told[0]["verdict"] == ""
    with scene.context.sessions() as session:
        row = session.get_one(Artifact, (agent.instance_id, "proofs.json"))
        said = next(a for a in manifest(scene, agent)["artifacts"] if a["name"] == "proofs.json")
        assert row.sha256 == said["sha256"]


def test_sealed_is_sealed(scene: Scene) -> None:
    agent = stopped(scene)
    late = agent.cut("bench", "late\n")
    agent.cutters.clear()
    scene.market.exit(scene.instance(agent.instance_id).label)
    collect_logs(agent.instance_id, 1)
    with pytest.raises(AgentRefused, match="sealed"):
        agent.send("bench", *late)
    with pytest.raises(AgentRefused, match="sealed"):
        agent.artifact("late.txt", b"x")
    with pytest.raises(NoSuchObject):
        scene.context.store.head(f"runs/{agent.run_id}/{agent.instance_id}/_artifacts/late.txt")
