"""The back end `cuda`: one process for each GPU, proofs handed to whichever is free.

CUDA is never touched in this process: it may fork, and a lost GPU must not take it along.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

from gpu.cuda.jobs import Job, JobQueue, order_of
from gpu.cuda.process import COMMAND, Limits
from gpu.cuda.segments import Segments
from gpu.cuda.wire import point_from
from gpu.cuda.worker import Worker
from gpu.errors import ProverError
from gpu.groth16.backend import Sums, Synthesis
from gpu.groth16.key import ProvingKey

_POLL_S = 0.05  # how soon a proof that is no longer wanted is withdrawn


class CudaBackend:
    """Starts a process on the first GPU and waits for it, then one for each of the others.

    GpuError, of the kind that says why, when not even the first can be used. `command` starts a GPU process.
    """

    name = "cuda"

    def __init__(self, command: Sequence[str] = COMMAND, limits: Limits | None = None) -> None:
        self._jobs = JobQueue()
        self._numbers = itertools.count(1)
        limits = limits or Limits()
        # With all GPUs in its sight it says how many there are; later ones see one each, by CUDA's own names for them.
        first = Worker(0, None, self._jobs, command, limits)
        first.start()
        first.settled.wait()
        if first.error is not None:
            self._jobs.close()
            raise first.error
        visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
        names = visible or [str(ordinal) for ordinal in range(first.facts["count"])]
        others = [Worker(k, names[k], self._jobs, command, limits) for k in range(1, first.facts["count"])]
        self._workers = [first, *others]
        self._segments = Segments(len(self._workers) + 1)
        for worker in others:
            worker.start()

    def sums(self, key: ProvingKey, ready: Synthesis) -> Sums:
        """As `gpu.groth16.backend.Backend` says. A proof whose process is lost is tried once more, in another process.

        OutOfDeviceMemory, with the figures, for a key that no GPU has room for.
        """
        vectors = (ready.witness, ready.a, ready.b)
        segment = self._segments.take(sum(vector.nbytes for vector in vectors))
        try:
            segment.write(vectors)
        except BaseException:
            self._segments.give_back(segment)
            raise
        order = order_of(next(self._numbers), os.path.abspath(key.path), key.content, vectors)
        job = Job(order, ready.ticket, segment, self._segments.give_back)
        self._jobs.put(job)
        while not job.finished.wait(_POLL_S):
            try:
                ready.ticket.check()
            except ProverError:
                self._jobs.withdraw(job)
                for worker in self._workers:
                    worker.cancel(job)
                raise
        if job.error is not None:
            raise job.error
        return Sums(**{name: point_from(point) for name, point in job.sums.items()})

    def workers(self) -> list[dict[str, Any]]:
        return [worker.status() for worker in self._workers]

    def gpus(self) -> list[dict[str, Any]]:
        """What each process says of its GPU and itself (name, sm_count, memory_bytes, pid); empty before it started."""
        return [worker.facts for worker in self._workers]

    def close(self) -> None:
        """Waits for the proofs that were asked for, then ends the processes."""
        self._jobs.close()
        for worker in self._workers:
            worker.join()
        self._segments.close()
