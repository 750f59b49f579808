"""RQ on a real Valkey: JSON, ids that carry the attempt, and no truth in Redis."""

from __future__ import annotations

import pytest
from pydantic import SecretStr
from rq.job import Job
from rq.serializers import JSONSerializer

from jobs import queue
from jobs.context import Context
from jobs.queue import QueueUnavailable, enqueue, overview, request_scan, requeue
from tests.fakes.market import FakeMarket
from tests.jobs.agent import Agent
from tests.jobs.scene import NO_REDIS, Clock, Scene
from tests.jobs.worker import work


@pytest.fixture
def live(redis_context: Context, clock: Clock, market: FakeMarket) -> Scene:
    market.offer("o1")
    return Scene(redis_context, clock, market)


def drive(scene: Scene, run_id: str, wanted: str) -> None:
    for _ in range(60):
        if scene.run(run_id).state == wanted:
            return
        scene.tick()
        work(scene)
    raise AssertionError(f"{run_id} is not {wanted}: {scene.told()}")


def machine(scene: Scene, run_id: str) -> Agent:
    instance_id = scene.instance_of(run_id).id
    agent = Agent(scene.context, scene.clock, run_id, instance_id).register(scene.bootstrap_token(instance_id))
    agent.lease("benchmark")
    agent.pull()
    agent.ship("bench", "hello\n")
    scene.clock.advance(3)
    for index in range(2):
        agent.prove(index)
    return agent


@pytest.mark.parametrize(("database", "flush"), [("postgresql", False), ("sqlite", True)], indirect=["database"])
def test_a_run_through_a_real_worker(live: Scene, flush: bool) -> None:
    run_id = live.request()

    def step(times: int = 1) -> None:
        if flush:
            live.context.redis.flushall()
            live.tick(6)  # what was enqueued is taken for lost after 5 s
        for _ in range(times):
            work(live)
            live.tick()

    step(3)
    step()
    assert live.instance_of(run_id).state == "loading", live.told()
    agent = machine(live, run_id)
    step()
    assert live.run(run_id).state == "passed", live.told()
    assert agent.seal().accepted
    step(12)
    assert live.instance(agent.instance_id).state == "destroyed", live.told()
    assert len(live.market.sold) == 1
    assert [e.new for e in live.events("run.state")] == ["active", "passed"]


def test_jobs_are_json_and_named_by_attempt(live: Scene) -> None:
    run_id = live.request()
    job = Job.fetch(f"prepare_{run_id}_1", connection=live.context.redis, serializer=JSONSerializer)
    assert (job.func_name, list(job.args)) == ("jobs.prepare.prepare", [run_id, 1])
    assert job.retries_left == len(queue.RETRY_S)
    enqueue(live.context, "destroy", "x", 1)
    enqueue(live.context, "destroy", "x", 1)
    enqueue(live.context, "destroy", "x", 2)
    assert {q.name: q.queued for q in overview(live.context).queues} == {"lifecycle": 2, "verify": 0, "prepare": 1}


def test_failed_jobs_are_shown_and_put_back(live: Scene) -> None:
    q = queue.queue(live.context, "lifecycle")
    q.enqueue("jobs.scan.scan_offers", "nobody", 1, job_id="bad")
    work(live)
    failed = overview(live.context).failed
    assert [(job.id, job.function, job.args) for job in failed] == [("bad", "jobs.scan.scan_offers", ["nobody", 1])]
    assert "no provider is called 'nobody'" in failed[0].error
    assert requeue(live.context, "bad", "anna")
    assert not requeue(live.context, "no-such-job", "anna")
    assert overview(live.context).failed == []
    assert [e.actor for e in live.events("job.requeued")] == ["anna"]


def test_a_scan_on_request(live: Scene) -> None:
    request_scan(live.context, "local", "anna")
    work(live)
    assert [offer.offer_id for offer in live.offers()] == ["o1"]


def test_with_redis_away_the_truth_is_kept_and_the_page_told(scene: Scene) -> None:
    assert scene.context.settings.redis_url == SecretStr(NO_REDIS)
    run_id = scene.request()  # does not raise
    assert scene.run(run_id).wake_at_ms is not None
    for call in (
        lambda: overview(scene.context),
        lambda: requeue(scene.context, "x", "anna"),
        lambda: request_scan(scene.context, "local", "anna"),
    ):
        with pytest.raises(QueueUnavailable, match="Redis does not answer"):
            call()
