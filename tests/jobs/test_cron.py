"""What happens by the clock: retries with their backoff, and periodic jobs, both as JSON."""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import SecretStr
from rq import SimpleWorker
from rq.cron import CronJob
from rq.serializers import JSONSerializer

from jobs import queue
from jobs.context import Context
from jobs.cron import JsonCron, scans
from jobs.settings import Settings


def test_a_failed_job_is_tried_again_after_its_backoff(redis_context: Context) -> None:
    q = queue.queue(redis_context, "lifecycle")
    queue.enqueue(redis_context, "scan_offers", "nobody", 1)
    SimpleWorker([q], connection=redis_context.redis, serializer=JSONSerializer).work(burst=True, logging_level="FATAL")
    assert (q.count, q.scheduled_job_registry.count, q.failed_job_registry.count) == (0, 1, 0)
    cron = JsonCron([], connection=redis_context.redis, logging_level="WARNING")
    deadline = time.monotonic() + 10
    while not q.count and time.monotonic() < deadline:
        cron.enqueue_jobs()
        time.sleep(0.2)
    assert q.count == 1
    job = q.get_jobs()[0]
    assert (job.id, list(job.args), job.retries_left) == ("scan_offers_nobody_1", ["nobody", 1], len(queue.RETRY_S) - 1)


def test_periodic_jobs_are_enqueued_as_our_workers_read_them(redis_context: Context) -> None:
    tidy = CronJob("lifecycle", func_name="jobs.tidy.tidy", interval=60)
    cron = JsonCron([tidy], connection=redis_context.redis, logging_level="WARNING")
    cron.enqueue_jobs()
    cron.enqueue_jobs()
    q = queue.queue(redis_context, "lifecycle")
    assert [job.func_name for job in q.get_jobs()] == ["jobs.tidy.tidy"]
    SimpleWorker([q], connection=redis_context.redis, serializer=JSONSerializer).work(burst=True, logging_level="FATAL")
    assert q.failed_job_registry.count == 0


def test_each_provider_is_searched_and_a_marketplace_behind_what_frees_machines(tmp_path: Path) -> None:
    here = Settings(state_dir=tmp_path)
    assert [(job.queue_name, job.args) for job in scans(here)] == [("lifecycle", ("local", 0))]
    both = Settings(state_dir=tmp_path, vast_api_key=SecretStr("k"))
    assert [(job.queue_name, job.args[0]) for job in scans(both)] == [("lifecycle", "local"), ("prepare", "vast")]
