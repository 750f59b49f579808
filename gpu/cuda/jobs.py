"""Proofs that wait for a GPU process, and which processes there are to wait for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpu.cuda.device import GpuError
from gpu.cuda.segments import Segment
from gpu.errors import ProverError
from gpu.groth16.ticket import Ticket

ATTEMPTS = 2
"""Processes that one proof may lose before it fails: it may be what kills them."""


class Job:
    """One proof's sums. `order` is what the process is told, `release` gives the shared memory back."""

    def __init__(
        self, order: dict[str, Any], ticket: Ticket, segment: Segment, release: Callable[[Segment], None]
    ) -> None:
        self.order = order
        self.ticket = ticket
        self.segment = segment
        self.finished = threading.Event()
        self.withdrawn = False
        self.attempts = 0
        self.sums: dict[str, Any] = {}
        self.error: ProverError | None = None
        self._release = release

    def end(self, sums: dict[str, Any] | None = None, error: ProverError | None = None) -> None:
        """Called once, by whoever knows how it ended, when no process reads the shared memory any more."""
        self.sums, self.error = sums or {}, error
        self._release(self.segment)
        self.finished.set()


class JobQueue:
    """First in, first out, to whichever worker asks first. Jobs fail at once while no worker can be hoped for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._hopeful: set[int] = set()
        self._despair: GpuError = GpuError("no GPU process was started")
        self.closing = False

    def put(self, job: Job) -> None:
        with self._changed:
            if self._hopeful and not self.closing:
                self._jobs.append(job)
                self._changed.notify()
                return
            error = self._despair
        job.end(error=error)

    def take(self, wait_s: float) -> Job | None:
        """The next job, waited for; None when there is none by then, or the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self.closing, wait_s)
            while self._jobs:
                job = self._jobs.popleft()
                if not job.withdrawn:
                    job.attempts += 1
                    return job
                job.end(error=GpuError("the proof was withdrawn"))
            return None

    def lost(self, job: Job, error: GpuError) -> None:
        """A job whose process was lost goes to another one, before all others, unless it has had its attempts."""
        with self._changed:
            if job.attempts < ATTEMPTS and not job.withdrawn and self._hopeful:
                self._jobs.appendleft(job)
                self._changed.notify()
                return
        job.end(error=GpuError(f"the proof failed on {job.attempts} GPU processes, the last time because {error}"))

    def withdraw(self, job: Job) -> None:
        """Nobody waits for the job any more: it ends unless a process already works on it."""
        with self._changed:
            job.withdrawn = True
            self._changed.notify_all()

    def worker_is(self, worker: int, error: GpuError | None = None) -> None:
        """A worker can be hoped for, or can't, because of `error`. With the last hope the waiting jobs fail."""
        failed: Sequence[Job] = ()
        with self._changed:
            if error is None:
                self._hopeful.add(worker)
                return
            self._hopeful.discard(worker)
            self._despair = error
            if not self._hopeful:
                failed, self._jobs = tuple(self._jobs), deque()
        for job in failed:
            job.end(error=error)

    def pause(self, seconds: float) -> bool:
        """Waits, and says whether the queue is still open then."""
        with self._changed:
            self._changed.wait_for(lambda: self.closing, seconds)
            return not self.closing

    def close(self) -> None:
        """No more jobs; those that wait are still taken."""
        with self._changed:
            self.closing = True
            self._changed.notify_all()


def order_of(number: int, path: str, content: str, vectors: Sequence[np.ndarray]) -> dict[str, Any]:
    """What `gpu.cuda.wire` calls prove."""
    return {"prove": number, "path": path, "content": content, "n_bytes": [vector.nbytes for vector in vectors]}
