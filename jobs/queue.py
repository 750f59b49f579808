"""The queues: RQ on Redis, JSON only. Redis holds no truth; `FLUSHALL` at any moment loses nothing but time.

Job ids carry the attempt (`deploy_<instance>_<attempt>`), since RQ refuses an id that any old job still has.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError
from rq import Queue, Retry, Worker
from rq.exceptions import DuplicateJobError, InvalidJobOperation, NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.worker_pool import WorkerPool

from jobs.context import Context, current, use
from jobs.cron import QUEUES
from jobs.cron import TIMEOUT_S as SCAN_TIMEOUT_S
from jobs.domain.work import record, transaction

if TYPE_CHECKING:
    from jobs.settings import Settings

log = logging.getLogger(__name__)

QUEUE_OF = {"prepare": "prepare", "benchmark": "verify", "diagnose": "prepare"}
FUNCTIONS = {
    "prepare": "jobs.prepare.prepare",
    "scan_offers": "jobs.scan.scan_offers",
    "deploy": "jobs.deploy.deploy",
    "benchmark": "jobs.benchmark.benchmark",
    "collect_logs": "jobs.collect.collect_logs",
    "destroy": "jobs.destroy.destroy",
    "diagnose": "jobs.diagnose.diagnose",
}
TIMEOUT_S = {"prepare": 3600, "scan_offers": SCAN_TIMEOUT_S, "diagnose": 900}
FAILURE_TTL_S = 7 * 86400
RETRY_S = [1, 3, 10, 30]


class QueueUnavailable(RuntimeError):
    """Redis does not answer; the work itself is safe in SQL and goes on when Redis is back."""


def queue(context: Context, name: str) -> Queue:
    return Queue(name, connection=context.redis, serializer=JSONSerializer)


def enqueue(context: Context, job: str, row_id: str, attempt: int) -> None:
    """Wake a worker. Raises `QueueUnavailable`; an id that is there already is no error (the same wake, twice)."""
    try:
        queue(context, QUEUE_OF.get(job, "lifecycle")).enqueue(
            FUNCTIONS[job],
            row_id,
            attempt,
            job_id=f"{job}_{row_id}_{attempt}",
            retry=Retry(max=len(RETRY_S), interval=RETRY_S),
            job_timeout=TIMEOUT_S.get(job, 120),
            result_ttl=600,
            failure_ttl=FAILURE_TTL_S,
            unique=True,
        )
    except DuplicateJobError:
        log.debug("%s_%s_%s is queued already", job, row_id, attempt)
    except (RedisError, OSError) as error:
        raise QueueUnavailable(
            f"Redis does not answer ({error}); is it running? `provefleet doctor` says more"
        ) from error


def request_scan(context: Context, provider: str, actor: str) -> None:
    """Ask for a fresh list of offers. Raises `QueueUnavailable`."""
    with transaction(context) as session:
        record(session, context.now_ms(), actor, "offers.scan_requested", data={"provider": provider})
    enqueue(context, "scan_offers", provider, context.now_ms())


@dataclass(frozen=True)
class FailedJob:
    id: str
    function: str
    args: list[Any]
    error: str
    ended_ms: int | None


@dataclass(frozen=True)
class QueueState:
    name: str
    queued: int
    started: int
    failed: int
    scheduled: int


@dataclass(frozen=True)
class WorkerState:
    name: str
    pid: int | None
    state: str
    job_id: str
    done: int
    failed: int


@dataclass(frozen=True)
class QueueOverview:
    queues: list[QueueState] = field(default_factory=list)
    workers: list[WorkerState] = field(default_factory=list)
    failed: list[FailedJob] = field(default_factory=list)


def _failed_jobs(context: Context, q: Queue, limit: int) -> list[FailedJob]:
    ids = q.failed_job_registry.get_job_ids(0, limit - 1, desc=True)
    jobs = Job.fetch_many(ids, connection=context.redis, serializer=JSONSerializer)
    found = []
    for job in jobs:
        if job is None:
            continue
        result = job.latest_result()
        error = ((result.exc_string if result else "") or "").strip()
        ended = int(job.ended_at.timestamp() * 1000) if job.ended_at else None
        found.append(FailedJob(job.id, job.func_name or "", list(job.args), error, ended))
    return found


def overview(context: Context, failed_limit: int = 50) -> QueueOverview:
    """Queues, workers and the newest failed jobs. Raises `QueueUnavailable`."""
    try:
        queues = [queue(context, name) for name in QUEUES]
        states = [
            QueueState(
                q.name,
                q.count,
                q.started_job_registry.count,
                q.failed_job_registry.count,
                q.scheduled_job_registry.count,
            )
            for q in queues
        ]
        workers = [
            WorkerState(
                w.name, w.pid, w.get_state(), w.get_current_job_id() or "", w.successful_job_count, w.failed_job_count
            )
            for w in Worker.all(connection=context.redis, serializer=JSONSerializer)
        ]
        failed = [job for q in queues for job in _failed_jobs(context, q, failed_limit)]
    except (RedisError, OSError) as error:
        raise QueueUnavailable(f"Redis does not answer ({error}); runs go on from SQL when it is back") from error
    return QueueOverview(states, workers, failed)


def requeue(context: Context, job_id: str, actor: str) -> bool:
    """Put a failed job back on its queue. False: there is no such failed job. Raises `QueueUnavailable`."""
    try:
        job = Job.fetch(job_id, connection=context.redis, serializer=JSONSerializer)
        job.requeue()
    except (NoSuchJobError, InvalidJobOperation):
        return False
    except (RedisError, OSError) as error:
        raise QueueUnavailable(f"Redis does not answer ({error}); try again when it is back") from error
    with transaction(context) as session:
        record(session, context.now_ms(), actor, "job.requeued", data={"job": job_id})
    return True


class LifecycleWorker(Worker):
    """RQ's worker, with limits of seconds where its defaults are minutes, and a fresh context in each work horse."""

    max_connection_wait_time = 4.0

    def __init__(self, *args: Any, **kwargs: Any):
        kwargs.update(job_monitoring_interval=5, maintenance_interval=15)
        super().__init__(*args, **kwargs)

    def work(self, *args: Any, **kwargs: Any) -> bool:
        """Without the scheduler process that RQ's pool gives each worker: `jobs.cron` has the one that is needed."""
        kwargs["with_scheduler"] = False
        return super().work(*args, **kwargs)

    def main_work_horse(self, *args: Any, **kwargs: Any) -> None:
        # A fork must not share sockets with its parent.
        use(None)
        super().main_work_horse(*args, **kwargs)


def run_workers(settings: Settings) -> None:
    """The worker pool; returns when it is told to stop and its jobs are done."""
    import jobs.benchmark
    import jobs.collect
    import jobs.compact
    import jobs.deploy
    import jobs.destroy
    import jobs.diagnose
    import jobs.prepare
    import jobs.retention
    import jobs.scan  # noqa: F401 - loaded once here, so that no fork has to

    context = current()
    WorkerPool(
        QUEUES,
        connection=context.redis,
        num_workers=settings.workers,
        worker_class=LifecycleWorker,
        serializer=JSONSerializer,
    ).start(logging_level="WARNING")
