"""Proofs on their way: partition workers synthesise while the provers prove and the verifiers verify.

    waiting --synthesise (P threads)--> ready --prove (a thread a processor)--> made --verify--> settled

Waiting and ready proofs are taken by priority, first come first served within one. A partition worker holds
its witness until a prover takes it, so at most P + provers of them are in memory, and fewer where the memory
for work in flight is short.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from gpu import memory
from gpu.errors import OutOfMemory, ProverError
from gpu.groth16.backend import Synthesis
from gpu.groth16.engine import Done, Engine, done
from gpu.groth16.formats import Proof
from gpu.groth16.key import ProvingKey
from gpu.groth16.ticket import Ticket
from gpu.journal import log, log_trace, timeline

State = Literal["pending", "synthesizing", "synth_done", "gpu", "done", "failed"]
_QUEUED = ("pending", "synth_done")
_NOTHING = np.empty(0, np.uint64)


@dataclass(frozen=True)
class Failure:
    """Why there is no proof: the error's word, and one line."""

    name: str
    message: str


@dataclass(eq=False)
class Partition:
    """One proof: what it is made from, how far it is, and in the end its proof or its failure."""

    ticket: Ticket
    zkey: str
    wtns: str
    priority: int = 0
    state: State = "pending"
    kind: str = "groth16"
    timings_ms: dict[str, float] = field(default_factory=dict)
    done: Done | None = None
    failure: Failure | None = None
    key: ProvingKey | None = None
    ready: Synthesis | None = None
    proof: Proof | None = None
    n_bytes: int = 0
    """Memory reserved for its witness and what is computed from it."""
    order: int = 0
    _since: float = field(default_factory=time.perf_counter)

    def mark(self, phase: str) -> None:
        """All the time since the last mark went to `phase`."""
        now = time.perf_counter()
        self.timings_ms[phase] = round(self.timings_ms.get(phase, 0.0) + (now - self._since) * 1000, 3)
        self._since = now

    def tell(self, event: str) -> None:
        timeline(event, self.ticket.job, f"partition={self.ticket.partition}")


class Pipeline:
    """Starts its threads at once. `settled` is called, from any of them, with each partition that has ended;
    `work_budget` is in bytes.
    """

    def __init__(
        self, engine: Engine, partition_workers: int, work_budget: int, settled: Callable[[Partition], None]
    ) -> None:
        self._engine = engine
        self.work_budget = work_budget
        self._settled = settled
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, Partition]] = []
        self._ready: list[tuple[int, int, Partition]] = []
        self._made: deque[Partition] = deque()
        self._deadlines: list[tuple[float, int, Partition]] = []
        self._counts = {"synthesizing": 0, "gpu": 0, "verifying": 0, "reserved": 0}
        self._closed = False
        provers = max(1, len(engine.backend.workers()))
        for name, work, count in (
            ("synthesise", self._synthesise, partition_workers),
            ("prove", self._prove, provers),
            ("verify", self._verify, provers),
            ("deadlines", self._watch_deadlines, 1),
        ):
            for i in range(count):
                threading.Thread(target=work, name=f"{name}-{i}", daemon=True).start()

    def add(self, partitions: Iterable[Partition]) -> None:
        with self._changed:
            for one in partitions:
                one.order = next(self._order)
                heapq.heappush(self._waiting, (-one.priority, one.order, one))
                if one.ticket.deadline is not None:
                    heapq.heappush(self._deadlines, (one.ticket.deadline, one.order, one))
                one.tell("QUEUED")
            self._changed.notify_all()

    def cancel(self, one: Partition, why: str) -> None:
        """Ends it: at once when it is queued, at the next boundary between two pieces of work when it runs."""
        one.ticket.cancel(why)
        self._drop(one, Failure("cancelled", why))

    def facts(self) -> dict[str, int]:
        """How many proofs are in each stage, and the bytes reserved for those past synthesis."""
        with self._changed:
            waiting, ready = (sum(one.state in _QUEUED for *_, one in queue) for queue in (self._waiting, self._ready))
            return {**self._counts, "waiting": waiting, "ready": ready, "made": len(self._made)}

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _synthesise(self) -> None:
        while (one := self._take(self._waiting, "synthesizing")) is not None:
            with self._counted("synthesizing"), self._answered(one):
                self._prepare(one)
                one.tell("SYNTH_START")
                assert one.key is not None
                one.ready = self._engine.synthesise(one.key, one.wtns, one.ticket)
                one.mark("synthesis")
                one.tell("SYNTH_END")
                one.ticket.check()
            self._hand_over(one)

    def _prepare(self, one: Partition) -> None:
        """The key and room for the witness."""
        one.mark("queue")
        one.ticket.check()
        one.key = self._engine.keys.acquire(one.zkey, one.ticket, lambda: one.tell("KEY_LOAD"))
        one.kind = f"groth16-{one.key.curve.name}"
        one.mark("load")
        self._reserve(one, work_bytes(one.key))
        one.mark("queue")

    def _hand_over(self, one: Partition) -> None:
        with self._changed:
            if one.ready is None or one.state != "synthesizing":
                return
            one.state = "synth_done"
            heapq.heappush(self._ready, (-one.priority, one.order, one))
            one.tell("GPU_QUEUE")
            self._changed.notify_all()
            while one.state == "synth_done" and not self._closed:
                self._changed.wait()

    def _prove(self) -> None:
        while (one := self._take(self._ready, "gpu")) is not None:
            with self._counted("gpu"), self._answered(one):
                one.tell("GPU_PICKUP")
                one.mark("queue")
                assert one.key is not None
                assert one.ready is not None
                one.tell("GPU_START")
                one.proof = self._engine.compute(one.key, one.ready)
                one.mark("compute")
                one.tell("GPU_END")
            with self._changed:
                if one.proof is not None and one.ready is not None:
                    one.ready = replace(one.ready, witness=_NOTHING, a=_NOTHING, b=_NOTHING)
                    self._unreserve(one)
                    self._made.append(one)
                    self._changed.notify_all()

    def _verify(self) -> None:
        while True:
            with self._changed:
                while not self._made and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                one = self._made.popleft()
            with self._counted("verifying"), self._answered(one):
                assert one.key is not None
                assert one.ready is not None
                assert one.proof is not None
                self._engine.check(one.key, one.ready, one.proof)
                one.mark("verify")
                one.done = done(one.key, one.ready, one.proof, one.timings_ms)
            if one.done is not None:
                self._settle(one, None)

    def _watch_deadlines(self) -> None:
        while not self._closed:
            with self._changed:
                due = self._deadlines[0][0] - time.monotonic() if self._deadlines else None
                if due is None or due > 0:
                    self._changed.wait(due)
                    continue
                _, _, one = heapq.heappop(self._deadlines)
            try:
                one.ticket.check()
            except ProverError as error:
                self._drop(one, Failure(error.name, str(error)))

    def _take(self, queue: list[tuple[int, int, Partition]], state: State) -> Partition | None:
        """The first in line, from now on in `state`; None when the pipeline is closed."""
        with self._changed:
            while not self._closed:
                while queue:
                    *_, one = heapq.heappop(queue)
                    if one.state in _QUEUED:  # a dropped one is left in its queue, settled
                        one.state = state
                        self._changed.notify_all()
                        return one
                self._changed.wait()
            return None

    def _drop(self, one: Partition, failure: Failure) -> None:
        """Settles one that is queued. One that runs stops by itself: its ticket says so."""
        with self._changed:
            if one.state not in _QUEUED:
                return
            one.state, one.failure = "failed", failure  # nobody takes it any more
        one.mark("queue")
        self._settle(one, failure)

    def _reserve(self, one: Partition, n_bytes: int) -> None:
        if n_bytes > self.work_budget:
            raise OutOfMemory(
                f"{one.zkey}: a proof with this key needs {n_bytes >> 20} MiB beside the keys, "
                f"{self.work_budget >> 20} MiB are free for it; take a machine with more memory"
            )
        with self._changed:
            while self._counts["reserved"] + n_bytes > self.work_budget:
                one.ticket.check()
                self._changed.wait(0.1)
            self._counts["reserved"] += n_bytes
            one.n_bytes = n_bytes

    def _unreserve(self, one: Partition) -> None:
        with self._changed:
            self._counts["reserved"] -= one.n_bytes
            one.n_bytes = 0

    @contextmanager
    def _counted(self, stage: str) -> Iterator[None]:
        with self._changed:
            self._counts[stage] += 1
        try:
            yield
        finally:
            with self._changed:
                self._counts[stage] -= 1

    @contextmanager
    def _answered(self, one: Partition) -> Iterator[None]:
        """Whatever happens to a proof becomes its answer; the thread goes on with the next one."""
        try:
            yield
        except ProverError as error:
            self._settle(one, Failure(error.name, str(error)))
        except MemoryError:
            message = f"out of memory while proving with {one.zkey}; use a machine with more"
            self._settle(one, Failure(OutOfMemory.WORD, message))
        except Exception:  # noqa: BLE001 - a fault of ours: its trace is in the log, its proof fails, others go on
            log_trace()
            self._settle(one, Failure("internal_error", "the daemon failed; its log says why"))

    def _settle(self, one: Partition, failure: Failure | None) -> None:
        key, one.key, one.ready, one.proof = one.key, None, None, None
        self._unreserve(one)
        if key is not None:
            self._engine.keys.release(key)
        with self._changed:
            one.failure = failure
            one.state = "failed" if failure else "done"
            self._changed.notify_all()
        one.tell("FAILED" if failure else "DONE")
        total = sum(one.timings_ms.values())
        name = one.ticket.job + (f"/{one.ticket.partition}" if one.ticket.partition else "")
        if failure:
            log(f"proof {name} failed after {total:.0f} ms: {failure.name}: {failure.message}")
        else:
            phases = ", ".join(f"{phase} {ms:.0f}" for phase, ms in one.timings_ms.items())
            log(f"proof {name} ok {total:.0f} ms ({phases})")
        self._settled(one)


def work_bytes(key: ProvingKey) -> int:
    """Memory of one proof beside its key, by the constants that `gpu.memory` measured."""
    facts = key.facts
    return memory.needed_for(facts.n_vars, facts.domain_size, 0, 0) - memory.needed_for(0, 0, 0, 0)
