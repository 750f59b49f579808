"""The diagnosis of a real run: kept in SQL when its evidence is sealed, read from the archive."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select

from jobs import collect, diagnose, queue
from jobs.context import Context
from jobs.diagnosis.engine import diagnose as conclude
from jobs.diagnosis.load import load_case
from jobs.diagnosis.report import Report
from jobs.domain.archive_models import Pin
from jobs.domain.diagnosis_models import Diagnosis
from logs.wire import bundle_key
from tests.fakes.market import FakeMarket
from tests.jobs.agent import Agent
from tests.jobs.scene import Clock, Scene
from tests.jobs.worker import work

SETUP = """[setup][entrypoint] 11:16:59 tunnels are up: 1235 (controller), 1234 (lotus)
[setup][entrypoint] 11:20:48 Starting benchmark: 12 proofs, concurrency 3, partition-workers 16
[setup][entrypoint] 11:31:08 benchmark.sh exited with error
[setup][entrypoint] 11:31:08 Benchmark result: 0 proofs/hour
"""
DECISIVE = "CUDA error: no kernel image is available for execution on the device"

MASKED = f"{DECISIVE} token=[redacted]"
"""As it is shown: the agent of this test masks nothing."""


def broken(scene: Scene) -> Agent:
    """The incident: a benchmark without a proof, its decisive line in the daemon's log; sealed, not yet diagnosed."""
    agent = scene.working(proofs=2)
    agent.ship("setup", SETUP)
    agent.ship("daemon", "loading srs\n" * 40)
    agent.ship("daemon", f"{DECISIVE} token=hunter2hunter2\n" + "waiting\n" * 40)
    agent.lease("benchmark", ended=True, exit_code=1, error="benchmark.sh exited with error")
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "sealing")
    assert agent.seal().accepted
    collect.collect_logs(agent.instance_id, 1)
    assert scene.run(agent.run_id).state in ("broken", "failed")
    return agent


def kept(scene: Scene, agent: Agent) -> Diagnosis:
    with scene.context.sessions() as session:
        return session.scalars(select(Diagnosis).where(Diagnosis.instance_id == agent.instance_id)).one()


def test_the_incident_is_diagnosed_after_the_machine_is_gone(scene: Scene) -> None:
    agent = broken(scene)
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "destroyed", limit=120)
    diagnose.diagnose(agent.instance_id, 1)
    row = kept(scene, agent)
    report = Report.from_json(row.report)
    assert (row.cause, row.stage, row.outcome) == ("no_kernel_image_for_gpu", "benchmark", "failed")
    assert report.top is not None
    assert [(e.file, e.line, e.text) for e in report.top.evidence] == [("daemon.log", 41, MASKED)]
    tunnel = next(h for h in report.hypotheses if h.cause == "tunnel_down")
    assert tunnel.refuted
    assert "does not use a tunnel" in tunnel.why
    assert report.symptom == scene.run(agent.run_id).reason
    # At least once: again is the same.
    diagnose.diagnose(agent.instance_id, 2)
    assert kept(scene, agent).report == row.report
    # The lines that it cites never expire.
    with scene.context.sessions() as session:
        pins = session.execute(select(Pin.stream, Pin.first_line, Pin.last_line, Pin.why)).all()
    assert ("daemon", 41, 41, "diagnosis") in pins
    assert len(pins) == len(set(pins))


class Worked(Scene):
    """Redis is there, and a worker for what is queued."""

    def tick(self, seconds: float = 1.0) -> None:
        super().tick(seconds)
        work(self)


def test_what_redis_lost_is_diagnosed_by_the_clock(redis_context: Context, clock: Clock, market: FakeMarket) -> None:
    market.offer("o1")
    scene = Worked(redis_context, clock, market)
    agent = broken(scene)
    redis_context.redis.flushall()
    diagnose.diagnose_missed()
    diagnose.diagnose_missed()
    waiting = queue.queue(redis_context, "prepare")
    assert waiting.job_ids == [f"diagnose_{agent.instance_id}_{clock.now_ms // 3600_000}"]
    work(scene)
    assert kept(scene, agent).cause == "no_kernel_image_for_gpu"
    diagnose.diagnose_missed()
    assert waiting.job_ids == []


def test_runs_that_ended_well_are_not_looked_at(scene: Scene) -> None:
    agent = scene.working(proofs=1)
    scene.clock.advance(5)
    agent.prove(0)
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "sealing")
    assert agent.seal().accepted
    collect.collect_logs(agent.instance_id, 1)
    diagnose.diagnose_missed()
    with scene.context.sessions() as session:
        assert session.scalars(select(Diagnosis)).all() == []
    # On demand it says so.
    report = diagnose.diagnose_instance(scene.context, agent.instance_id)
    assert report is not None
    assert (report.outcome, report.hypotheses[0].cause) == ("ok", "none")


def test_what_the_provider_said_counts(scene: Scene) -> None:
    _, instance_id = scene.rented()
    with scene.context.sessions() as session:
        instance = session.get_one(type(scene.instance(instance_id)), instance_id)
        instance.provider_status = "stopped"
        instance.reason = "the provider says: outbid by a higher bid"
        session.commit()
    report = diagnose.diagnose_instance(scene.context, instance_id)
    assert report is not None
    assert report.top is not None
    assert report.top.cause == "outbid"
    assert report.top.evidence[0].file == "case.toml"
    assert diagnose.diagnose_instance(scene.context, "0" * 32) is None


def test_the_bundle_alone_tells_the_same(scene: Scene, tmp_path: Path) -> None:
    agent = broken(scene)
    file = tmp_path / "evidence.zip"
    file.write_bytes(scene.context.store.get(bundle_key(agent.run_id, agent.instance_id), 1 << 24))
    alone, here = conclude(load_case(file)), diagnose.diagnose_instance(scene.context, agent.instance_id)
    assert here is not None
    assert [(h.cause, h.refuted) for h in alone.hypotheses] == [(h.cause, h.refuted) for h in here.hypotheses]
    assert (alone.stage, alone.image) == (here.stage, here.image)
