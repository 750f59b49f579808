"""What the proving daemon does, apart from HTTP: jobs by request id, counters, draining, one log line a
proof.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from gpu.errors import ProverError
from gpu.groth16.engine import Done, Engine

KEPT_ANSWERS = 256
_UNPROCESSABLE = 422


@dataclass
class Job:
    """One request id. `error` is (HTTP status, name, message)."""

    zkey: str
    wtns: str
    finished: threading.Event = field(default_factory=threading.Event)
    done: Done | None = None
    error: tuple[int, str, str] | None = None


class Service:
    """Jobs of one engine. A request id names one job: asked again, it is awaited or answered from memory."""

    def __init__(self, engine: Engine, partition_workers: int) -> None:
        self.engine = engine
        self.partition_workers = partition_workers
        self.draining = False
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._counts = {"active": 0, "done": 0, "failed": 0}
        self._since = time.monotonic()

    def submit(self, request_id: str, zkey: str, wtns: str) -> Job:
        """The finished job of this id: proved now, awaited or remembered."""
        with self._lock:
            job = self._jobs.get(request_id)
            if job is not None and (job.zkey, job.wtns) != (zkey, wtns):
                message = f"request id {request_id!r} was used with other files; take a new id"
                return Job(zkey, wtns, error=(409, "request_id_reused", message))
            mine = job is None
            if job is None:
                job = self._jobs[request_id] = Job(zkey, wtns)
        if mine:
            self._run(request_id, job)
        job.finished.wait()
        return job

    def _run(self, request_id: str, job: Job) -> None:
        begun = time.perf_counter()
        try:
            job.done = self.engine.prove(job.zkey, job.wtns)
        except ProverError as error:
            job.error = (_UNPROCESSABLE, error.name, str(error))
        except MemoryError:
            job.error = (503, "out_of_memory", f"out of memory while proving with {job.zkey}; use a larger machine")
        finally:
            if job.done is None and job.error is None:
                job.error = (500, "internal_error", "the daemon failed; its log says why")
            self._finish(request_id, job, (time.perf_counter() - begun) * 1000)

    def _finish(self, request_id: str, job: Job, ms: float) -> None:
        with self._lock:
            self._counts["done" if job.done else "failed"] += 1
            if job.done is None:
                del self._jobs[request_id]  # a failure is not an answer to keep: the same id may try again
            while len(self._jobs) > KEPT_ANSWERS and next(iter(self._jobs.values())).finished.is_set():
                self._jobs.popitem(last=False)
        job.finished.set()
        if job.done:
            phases = ", ".join(f"{name} {value:.0f}" for name, value in job.done.timings_ms.items())
            log(f"proof {request_id} ok {ms:.0f} ms ({phases})")
        elif job.error:
            log(f"proof {request_id} failed after {ms:.0f} ms: {job.error[1]}: {job.error[2]}")

    def enter(self) -> bool:
        """Counts a request in, unless draining."""
        with self._lock:
            if self.draining:
                return False
            self._counts["active"] += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._counts["active"] -= 1
            self._idle.notify_all()

    def drain(self) -> None:
        """Refuses new requests and waits until the last one has its answer."""
        with self._lock:
            self.draining = True
            while self._counts["active"]:
                self._idle.wait()

    def status(self) -> dict[str, Any]:
        with self._lock:
            counts = dict(self._counts)
        return {
            "state": "draining" if self.draining else "ready",
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._since, 3),
            "partition_workers": self.partition_workers,
            "threads": self.engine.threads,
            **counts,
            "key_budget_bytes": self.engine.keys.budget,
            "keys": self.engine.keys.facts(),
        }


def log(line: str) -> None:
    """One line on stderr, whatever the files are called."""
    print(" ".join(line.split()), file=sys.stderr, flush=True)  # noqa: T201 - stderr is the daemon's log stream
