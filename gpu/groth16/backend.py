"""Where the heavy part of a proof is done: one interface, and its implementation on the CPU.

A back end turns a synthesised witness into the five sums of which a proof is made; whoever called it adds the
blinding, which never leaves the host.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gpu.curve.reference import Point
from gpu.field import choice
from gpu.groth16.key import ProvingKey
from gpu.groth16.ticket import Ticket
from gpu.msm.plan import Msm
from gpu.ntt.domain import domain


@dataclass(frozen=True)
class Synthesis:
    """A witness made ready: its values (plain, four words each), and a, b on the domain (Montgomery form)."""

    wtns: str
    witness: np.ndarray
    public: list[int]
    a: np.ndarray
    b: np.ndarray
    ticket: Ticket = field(default_factory=Ticket)


@dataclass(frozen=True)
class Sums:
    """The multi-scalar sums over the key's points: B2 in G2, the others in G1."""

    b2: Point
    a: Point
    b1: Point
    c: Point
    h: Point


class Backend(Protocol):
    """Anything that computes `Sums`. `name` is what PROVEFLEET_PROVER_BACKEND calls it.

    The daemon calls `sums` from as many threads as there are `workers`.
    """

    name: str

    def sums(self, key: ProvingKey, ready: Synthesis) -> Sums:
        """Uses up `ready`. ProverError when it can't be done; stops soon after `ready.ticket.check()` would
        raise, with the same error.
        """
        ...

    def workers(self) -> list[dict[str, Any]]:
        """What each of its processors does now, in the shape of cuzk's status: worker_id, gpu_ordinal (None on
        a CPU), state (idle or proving; of a GPU also starting or failed), current_job, current_partition, busy_secs
        (None unless proving).
        """
        ...

    def close(self) -> None: ...


class CpuBackend:
    """The sums on this machine's cores, by a pool of threads that run kernels without the GIL.

    `wanted`: scalar, ifma (Refused where that can't be had) or auto, which takes the faster one that works.
    """

    def __init__(self, pool: Executor, threads: int, wanted: str = "auto") -> None:
        self.name = choice.preferred(wanted)
        self._wanted = wanted
        self._pool = pool
        self._threads = threads
        self._lock = threading.Lock()
        self._busy: dict[Ticket, float] = {}

    def sums(self, key: ProvingKey, ready: Synthesis) -> Sums:
        with self._lock:
            self._busy[ready.ticket] = time.monotonic()
        try:
            return self._sums(key, ready)
        finally:
            with self._lock:
                del self._busy[ready.ticket]

    def workers(self) -> list[dict[str, Any]]:
        """One: a proof at a time keeps all cores busy, and two would only need twice the memory."""
        with self._lock:
            ticket, since = next(iter(self._busy.items()), (None, 0.0))
        return [
            {
                "worker_id": 0,
                "gpu_ordinal": None,
                "state": "proving" if ticket else "idle",
                "current_job": ticket.job if ticket else None,
                "current_partition": ticket.partition if ticket else None,
                "busy_secs": round(time.monotonic() - since, 3) if ticket else None,
            }
        ]

    def _sums(self, key: ProvingKey, ready: Synthesis) -> Sums:
        pool, w = ready.ticket.over(self._pool), ready.witness
        curve = key.curve
        lanes = choice.lanes(self._wanted, ((curve.fr, 1), (curve.fp, 1), (curve.fp, 2)))
        domain(curve, key.facts.domain_size, lanes).quotient(ready.a, ready.b, pool, self._threads)
        sums = [
            Msm(group, points, scalars, pool, self._threads, lanes)
            for group, points, scalars in (
                (key.g2, key.b2, w),
                (key.g1, key.a, w),
                (key.g1, key.b1, w),
                (key.g1, key.c, w[4 * (key.facts.n_public + 1) :]),
                (key.g1, key.h, ready.a),
            )
        ]
        return Sums(*(part.result() for part in sums))

    def close(self) -> None:
        """Nothing: the pool is its owner's."""
