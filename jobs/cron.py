"""What happens by the clock, all of it RQ's: the periodic jobs (cron) and the retries with their backoff (scheduler).

One process for both, so that no worker needs a scheduler process of its own. It only names functions; the
workers import them. RQ's cron has no leader lock: `up` starts one, and its jobs are idempotent anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis import Redis
from rq import Queue
from rq.cron import CronJob, CronScheduler
from rq.scheduler import RQScheduler
from rq.serializers import JSONSerializer
from rq.utils import now

from jobs.market import provider_names

if TYPE_CHECKING:
    from jobs.settings import Settings

# First come the steps that free machines and money, last the slow ones that make keys.
QUEUES = ("lifecycle", "verify", "prepare")
RESULT_TTL_S = 600
RETRY_TICK_S = 1
SCAN_EVERY_S = 300
# At a marketplace's pace a scan takes minutes, and twice as many where two of them share it.
TIMEOUT_S = 600


class JsonCron(CronScheduler):
    """RQ's cron always pickles; this one enqueues the due jobs as JSON, which is all that our workers read."""

    def __init__(self, jobs: list[CronJob], **kwargs: Any):
        super().__init__(**kwargs)
        self._cron_jobs = jobs
        self._retries = RQScheduler(
            QUEUES, self.connection, interval=RETRY_TICK_S, logging_level="WARNING", serializer=JSONSerializer
        )

    def calculate_sleep_interval(self) -> float:
        """At most a second: retries are due by the second."""
        return min(super().calculate_sleep_interval(), RETRY_TICK_S)

    def enqueue_jobs(self) -> list[CronJob]:
        """Enqueue what is due: retries whose backoff is over, and periodic jobs."""
        self._retries.acquire_locks()
        self._retries.enqueue_scheduled_jobs()
        due = [job for job in self.get_jobs() if job.should_run()]
        for job in due:
            queue = Queue(job.queue_name, connection=self.connection, serializer=JSONSerializer)
            queue.enqueue(job.func_name, *job.args, result_ttl=RESULT_TTL_S, job_timeout=TIMEOUT_S)
            job.set_enqueue_time(now())
        return due


def scans(settings: Settings) -> list[CronJob]:
    """A search of each provider's offers every 5 minutes. At a marketplace's pace one takes minutes itself: it waits
    behind what frees machines and money."""
    queues = {name: "lifecycle" if name == "local" else "prepare" for name in provider_names(settings)}
    return [
        CronJob(queue, func_name="jobs.scan.scan_offers", args=(name, 0), interval=SCAN_EVERY_S)
        for name, queue in queues.items()
    ]


def run_cron(settings: Settings) -> None:
    """Enqueue by the clock until told to stop."""
    jobs = [
        *scans(settings),
        CronJob("lifecycle", func_name="jobs.tidy.tidy", interval=60),
        CronJob("prepare", func_name="jobs.compact.compact", interval=60),
        CronJob("prepare", func_name="jobs.retention.expire", interval=600),
        CronJob("prepare", func_name="jobs.diagnose.diagnose_missed", interval=60),
    ]
    JsonCron(jobs, connection=Redis.from_url(settings.redis_url.get_secret_value()), logging_level="WARNING").start()
