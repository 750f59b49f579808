"""What the proving daemon does, apart from HTTP: jobs by request id, their answers, counters, draining.

A job is one request: one proof, or many partitions of one key. A client that goes away changes nothing: the
proofs go on, and who comes back with the same id gets them. To stop them, cancel.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field

from gpu import memory
from gpu.errors import Refused
from gpu.groth16.engine import Engine
from gpu.groth16.ticket import Ticket
from gpu.journal import log
from gpu.pipeline import Partition, Pipeline
from gpu.request import ProofRequest

KEPT_ANSWERS = 1024
KEPT_S = 3600.0  # an answer is there for this long, unless so many came since
MAX_QUEUED = 16384  # proofs; a client that asks for more has lost its way
_STOP_S = 10.0  # for what runs to notice that it was cancelled


class Conflict(Refused):
    """The request id stands for other files."""

    WORD = "request_id_reused"


class Draining(Refused):
    """The daemon is about to stop."""

    WORD = "draining"


class Busy(Refused):
    """The queue is full."""

    WORD = "busy"


@dataclass(eq=False)
class Job:
    """One request id and its partitions."""

    request: ProofRequest
    partitions: list[Partition] = field(default_factory=list)
    accepted_at: float = field(default_factory=time.monotonic)
    finished_at: float | None = None
    finished: threading.Event = field(default_factory=threading.Event)

    @property
    def state(self) -> str:
        """queued, running, done, or failed when any proof failed."""
        states = {one.state for one in self.partitions}
        if not self.finished.is_set():
            return "queued" if states == {"pending"} else "running"
        return "failed" if "failed" in states else "done"


class Service:
    """Jobs of one engine. `deadline_s` is for requests that bring none of their own; None: no deadline."""

    def __init__(self, engine: Engine, partition_workers: int, deadline_s: float | None = None) -> None:
        self.engine = engine
        self.partition_workers = partition_workers
        self.draining = False
        self.started_at = time.monotonic()
        self.completed: Counter[str] = Counter()
        self.failed: Counter[tuple[str, str]] = Counter()
        self.durations_s: deque[float] = deque(maxlen=1024)
        self.duration_sum_s = 0.0
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._answering = 0
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        # What keys do not use, less an eighth for the program itself and for whatever else runs here.
        self.memory_bytes = memory.limit_bytes()
        work = max(self.memory_bytes - engine.keys.budget - self.memory_bytes // 8, self.memory_bytes // 8)
        self.pipeline = Pipeline(engine, partition_workers, work, self._settled)

    def submit(self, request: ProofRequest) -> Job:
        """The job of this id: new, under way, or done before. One that failed is tried again.

        Conflict when the id was used with other files; Draining and Busy when new work can't be taken.
        """
        with self._lock:
            self._forget_old()
            job = self._jobs.get(request.request_id)
            if job is not None and job.state != "failed":
                if not job.request.same_work(request):
                    raise Conflict(f"request id {request.request_id!r} was used with other files; take a new id")
                return job
            if self.draining:
                raise Draining("the daemon is about to stop; ask another one")
            waiting = sum(len(other.partitions) for other in self._jobs.values() if not other.finished.is_set())
            if waiting + len(request.witnesses) > MAX_QUEUED:
                raise Busy(f"{waiting} proofs wait already; try again when some are done")
            job = self._jobs[request.request_id] = self._job(request)
            self._jobs.move_to_end(request.request_id)
        self.pipeline.add(job.partitions)
        return job

    def _job(self, request: ProofRequest) -> Job:
        seconds = request.deadline_s or self._deadline_s
        deadline = None if seconds is None else time.monotonic() + seconds
        job = Job(request)
        for index, wtns in enumerate(request.witnesses):
            ticket = Ticket(request.request_id, index, deadline)
            job.partitions.append(Partition(ticket, request.zkey, wtns, request.priority))
        return job

    def find(self, request_id: str) -> Job | None:
        with self._lock:
            self._forget_old()
            return self._jobs.get(request_id)

    def jobs(self) -> list[Job]:
        """All that are remembered, oldest first."""
        with self._lock:
            return list(self._jobs.values())

    def cancel(self, job: Job, why: str = "the proof was cancelled by request; ask again for a new one") -> None:
        """Ends what is queued of it now, and what runs soon. Proofs that are done stay done."""
        for one in job.partitions:
            self.pipeline.cancel(one, why)

    def enter(self) -> None:
        """A request is being answered; `drain` waits until `leave`."""
        with self._lock:
            self._answering += 1

    def leave(self) -> None:
        with self._lock:
            self._answering -= 1
            self._idle.notify_all()

    def drain(self, limit_s: float | None = None) -> bool:
        """Takes no new jobs and waits until the last one has ended and its answer is out. After `limit_s`
        the rest is cancelled; False then.
        """
        with self._lock:
            self.draining = True
            if self._idle.wait_for(self._all_out, limit_s):
                return True
            left = [job for job in self._jobs.values() if not job.finished.is_set()]
        log(f"drain limit passed: cancels {len(left)} jobs")
        for job in left:
            self.cancel(job, "the daemon was stopped before the proof was done; ask another one")
        with self._lock:
            self._idle.wait_for(self._all_out, _STOP_S)
        return False

    def close(self) -> None:
        self.pipeline.close()
        self.engine.close()

    def _all_out(self) -> bool:
        return not self._answering and all(job.finished.is_set() for job in self._jobs.values())

    def _settled(self, one: Partition) -> None:
        with self._lock:
            if one.failure is None:
                self.completed[one.kind] += 1
                seconds = sum(one.timings_ms.values()) / 1000
                self.durations_s.append(seconds)
                self.duration_sum_s += seconds
            else:
                self.failed[one.kind, one.failure.name] += 1
            job = self._jobs[one.ticket.job]
            if all(part.state in ("done", "failed") for part in job.partitions):
                job.finished_at = time.monotonic()
                job.finished.set()
                self._idle.notify_all()

    def _forget_old(self) -> None:
        now = time.monotonic()
        for request_id, job in list(self._jobs.items()):
            if job.finished_at is None:
                continue
            if len(self._jobs) <= KEPT_ANSWERS and now - job.finished_at <= KEPT_S:
                break
            del self._jobs[request_id]
