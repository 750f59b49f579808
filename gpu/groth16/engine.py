"""The prover's parts put together: a pool of threads, a back end, the resident keys, and the stages of a proof.

The stages are separate calls, so that the daemon overlaps those of different proofs; `prove` runs them one
after another.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from gpu import memory
from gpu.cuda.device import GpuError, NoDevice
from gpu.cuda.presence import look_for_gpus
from gpu.errors import Refused
from gpu.groth16 import prover
from gpu.groth16.backend import Backend, CpuBackend, Synthesis
from gpu.groth16.formats import Proof, proof_json, public_json
from gpu.groth16.key import ProvingKey
from gpu.groth16.keys import KeyStore
from gpu.groth16.ticket import Ticket
from gpu.journal import log

BACKENDS = ("auto", "scalar", "ifma", "cuda")


@dataclass(frozen=True)
class Done:
    """A checked proof in snarkjs' JSON, with the milliseconds of queue, load, synthesis, compute and
    verify.
    """

    proof: dict[str, Any]
    public: list[str]
    timings_ms: dict[str, float]


def choose_backend(pool: Executor, threads: int) -> Backend:
    """The back end that PROVEFLEET_PROVER_BACKEND names; `auto` takes the fastest that this machine can run.

    Refused when it names one that this build or this machine has not: it must not silently get another.
    """
    wanted = os.environ.get("PROVEFLEET_PROVER_BACKEND") or "auto"
    if wanted not in BACKENDS:
        raise Refused(
            f"PROVEFLEET_PROVER_BACKEND={wanted}: this build has no such back end; "
            f"set it to one of {', '.join(BACKENDS)}"
        )
    if wanted in ("auto", "cuda"):
        try:
            return _on_gpus()
        except GpuError as error:
            if wanted == "cuda":
                raise Refused(f"PROVEFLEET_PROVER_BACKEND=cuda: {error}") from error
            if not isinstance(error, NoDevice):  # most machines have no GPU, and nobody wants to hear of it
                log(f"proving on the CPU, because {error}")
    return CpuBackend(pool, threads, wanted)


def _on_gpus() -> Backend:
    """A process on each GPU. GpuError with the reason when there can be none."""
    look_for_gpus()
    from gpu.cuda.client import CudaBackend  # only where there is a GPU: a short proof is over before it is imported

    return CudaBackend()


class Engine:
    """Any number of threads may call it. `key_budget`: bytes for resident keys, by default half of what
    this process may use.
    """

    def __init__(self, *, threads: int | None = None, key_budget: int | None = None) -> None:
        self.threads = threads or memory.usable_cpus()
        self._pool = ThreadPoolExecutor(self.threads, "kernel")
        self.backend = choose_backend(self._pool, self.threads)
        wanted = "scalar" if self.backend.name == "scalar" else "auto"  # the points of a key are checked on the CPU
        self.keys = KeyStore(self._pool, self.threads, key_budget or memory.limit_bytes() // 2, wanted)

    def synthesise(self, key: ProvingKey, wtns: str, ticket: Ticket) -> Synthesis:
        """A witness, read, checked and multiplied with the matrices. ProverError for a bad one."""
        ticket.check()
        return prover.synthesise(key, wtns, self._pool, ticket)

    def compute(self, key: ProvingKey, ready: Synthesis, insecure_seed: str | None = None) -> Proof:
        """The proof, not yet checked. Uses up `ready`'s arrays."""
        ready.ticket.check()
        blinding = prover.draw_blinding(key.curve.r, insecure_seed)
        return prover.compute(key, ready, self.backend, blinding)

    def check(self, key: ProvingKey, ready: Synthesis, proof: Proof) -> None:
        """WitnessRefused unless the proof verifies."""
        ready.ticket.check()
        prover.check(key, ready, proof, ready.ticket.over(self._pool), self.threads)

    def prove(self, zkey: str, wtns: str, insecure_seed: str | None = None) -> Done:
        """A checked proof. ProverError, by name, when the files or the witness are refused."""
        timings, ticket = prover.Timings({"queue": 0.0}), Ticket()
        with self.keys.using(zkey, ticket) as key:
            timings.mark("load")
            ready = self.synthesise(key, wtns, ticket)
            timings.mark("synthesis")
            proof = self.compute(key, ready, insecure_seed)
            timings.mark("compute")
            self.check(key, ready, proof)
            timings.mark("verify")
        return done(key, ready, proof, timings.phases)

    def close(self) -> None:
        self.backend.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


def done(key: ProvingKey, ready: Synthesis, proof: Proof, timings_ms: dict[str, float]) -> Done:
    """A checked proof as it leaves the prover."""
    return Done(proof_json(key.curve, proof), public_json(ready.public), timings_ms)
