"""A thread for each GPU: owns the GPU's process, replaces it when it is lost, and feeds it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from gpu.cuda.device import GpuError, GpuUnavailable
from gpu.cuda.jobs import Job, JobQueue
from gpu.cuda.process import GpuProcess, Limits, ProcessLost
from gpu.errors import ProverError
from gpu.journal import log

_IDLE_S = 1.0
_PAUSES_S = (1, 2, 4, 8, 16, 30)  # between attempts to start a process that does not start


class Worker(threading.Thread):
    """`ordinal` counts the GPUs that this program may use; `visible` is the process's CUDA_VISIBLE_DEVICES."""

    def __init__(
        self, ordinal: int, visible: str | None, jobs: JobQueue, command: Sequence[str], limits: Limits
    ) -> None:
        super().__init__(name=f"gpu-{ordinal}", daemon=True)
        self.ordinal = ordinal
        self.facts: dict[str, Any] = {}
        self.settled = threading.Event()
        self.error: GpuError | None = None
        self._visible = visible
        self._jobs = jobs
        self._command = command
        self._limits = limits
        self._process: GpuProcess | None = None
        self._state = "starting"
        self._job: Job | None = None
        self._since = 0.0
        jobs.worker_is(ordinal)

    def run(self) -> None:
        while self._start():
            job = self._jobs.take(_IDLE_S)
            if job is not None:
                self._prove(job)
            elif self._jobs.closing:
                break
            else:
                self._look_after()
        if self._process is not None:
            self._process.stop()
            self._process = None

    def cancel(self, job: Job) -> None:
        """Stops the job if it is this worker's; from any thread."""
        process = self._process
        if job is self._job and process is not None:
            process.cancel(job.order["prove"])

    def status(self) -> dict[str, Any]:
        """As `gpu.groth16.backend.Backend.workers` says, with the states `starting` and `failed` besides."""
        job = self._job
        return {
            "worker_id": self.ordinal,
            "gpu_ordinal": self.ordinal,
            "state": "proving" if job else self._state,
            "current_job": job.ticket.job if job else None,
            "current_partition": job.ticket.partition if job else None,
            "busy_secs": round(time.monotonic() - self._since, 3) if job else None,
        }

    def _prove(self, job: Job) -> None:
        assert self._process is not None
        self._since, self._job = time.monotonic(), job
        sums, error = None, None
        try:
            sums = self._process.prove(job.order, job.segment.descriptor)["sums"]
        except ProverError as problem:
            error = problem
        self._job = None
        if isinstance(error, ProcessLost):
            self._forget(error)
            self._jobs.lost(job, error)
        else:
            job.end(sums, error)

    def _look_after(self) -> None:
        """A process that died while it had nothing to do is replaced before the next proof comes."""
        assert self._process is not None
        try:
            self._process.look()
        except ProcessLost as error:
            self._forget(error)

    def _forget(self, error: ProcessLost) -> None:
        self._process, self._state = None, "starting"
        log(f"GPU {self.ordinal}: {error}; it is replaced")

    def _start(self) -> bool:
        """Whether there is a process to work with. Tries until there is one, the queue is closed, or the GPU turns out
        to be one that can't be used.
        """
        pauses = iter(_PAUSES_S)
        while self._process is None:
            try:
                process = GpuProcess(self._command, self._visible, self._limits)
                process.wait_until_ready()
            except (OSError, ProverError) as problem:
                self._state = "failed"
                self.error = problem if isinstance(problem, GpuError) else GpuError(f"no GPU process: {problem}")
                self._jobs.worker_is(self.ordinal, self.error)
                if self.ordinal or self.settled.is_set():  # who waits for the first start of the first will say it
                    log(f"GPU {self.ordinal}: {self.error}")
                self.settled.set()
                if isinstance(self.error, GpuUnavailable) or not self._jobs.pause(next(pauses, _PAUSES_S[-1])):
                    return False
            else:
                self._process, self.facts, self.error, self._state = process, process.facts, None, "idle"
                self._jobs.worker_is(self.ordinal)
                self.settled.set()
        return True
