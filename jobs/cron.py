"""The periodic jobs, by RQ's cron. This process only names functions; the workers import them.

RQ's cron has no leader lock: `up` starts one, and its jobs are idempotent anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis import Redis
from rq import Queue
from rq.cron import CronJob, CronScheduler
from rq.serializers import JSONSerializer
from rq.utils import now

if TYPE_CHECKING:
    from jobs.settings import Settings

RESULT_TTL_S = 600


class JsonCron(CronScheduler):
    """RQ's cron always pickles; this one enqueues the due jobs as JSON, which is all that our workers read."""

    def __init__(self, jobs: list[CronJob], **kwargs: Any):
        super().__init__(**kwargs)
        self._cron_jobs = jobs

    def enqueue_jobs(self) -> list[CronJob]:
        """Enqueue what is due."""
        due = [job for job in self.get_jobs() if job.should_run()]
        for job in due:
            queue = Queue(job.queue_name, connection=self.connection, serializer=JSONSerializer)
            queue.enqueue(job.func_name, *job.args, result_ttl=RESULT_TTL_S)
            job.set_enqueue_time(now())
        return due


def run_cron(settings: Settings) -> None:
    """Enqueue by the clock until told to stop."""
    jobs = [
        CronJob("lifecycle", func_name="jobs.scan.scan_offers", args=("local", 0), interval=300),
        CronJob("lifecycle", func_name="jobs.tidy.tidy", interval=60),
    ]
    JsonCron(jobs, connection=Redis.from_url(settings.redis_url.get_secret_value()), logging_level="WARNING").start()
