"""A prover that stays: keys resident under a memory budget, P proofs at a time, one pool of threads for
all of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu import memory
from gpu.errors import BadFile, Refused
from gpu.groth16.backend import Backend, CpuBackend
from gpu.groth16.formats import proof_json, public_json
from gpu.groth16.key import ProvingKey, load_key
from gpu.groth16.prover import prove


@dataclass(frozen=True)
class Done:
    """A checked proof in snarkjs' JSON, with the milliseconds of queue, load, synthesis, compute and
    verify.
    """

    proof: dict[str, Any]
    public: list[str]
    timings_ms: dict[str, float]


class KeyStore:
    """Loaded keys, least recently used first out. A file that changed on disk is another key."""

    def __init__(self, pool: ThreadPoolExecutor, threads: int, budget: int) -> None:
        self.budget = budget
        self._pool = pool
        self._threads = threads
        self._lock = threading.Lock()
        self._keys: OrderedDict[tuple[str, int, int, int], ProvingKey] = OrderedDict()

    def get(self, path: str) -> ProvingKey:
        """The key, loaded if need be. BadFile for a bad one, Refused for one over the budget."""
        try:
            stat = os.stat(path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise BadFile(path, "file", f"cannot be read: {why}", "check the path and its permissions") from error
        name = (str(Path(path).resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns)
        # Loads queue behind one another: two at once would need twice the memory and gain no time.
        with self._lock:
            if name in self._keys:
                self._keys.move_to_end(name)
                return self._keys[name]
            if stat.st_size > self.budget:
                raise Refused(
                    f"{path}: the key has {stat.st_size >> 20} MiB, over the {self.budget >> 20} MiB that keys may "
                    "use; take a machine with more memory"
                )
            key = load_key(path, self._pool, self._threads)
            self._keys[name] = key
            while sum(held.n_bytes for held in self._keys.values()) > self.budget and len(self._keys) > 1:
                self._keys.popitem(last=False)
            return key

    def facts(self) -> list[dict[str, Any]]:
        """What is resident, most recently used last."""
        return [
            {
                "path": key.path,
                "curve": key.curve.name,
                "domain_size": key.facts.domain_size,
                "n_bytes": key.n_bytes,
            }
            for key in list(self._keys.values())
        ]


BACKENDS = ("auto", "scalar")


def _check_backend() -> None:
    """Refused when PROVEFLEET_PROVER_BACKEND asks for what this build has not: it must not silently get
    another.
    """
    wanted = os.environ.get("PROVEFLEET_PROVER_BACKEND") or "auto"
    if wanted not in BACKENDS:
        raise Refused(
            f"PROVEFLEET_PROVER_BACKEND={wanted}: this build has no such back end; "
            f"set it to one of {', '.join(BACKENDS)}"
        )


class Engine:
    """Proves on request from any number of threads; `partition_workers` of them work at a time, the
    others queue.
    """

    def __init__(self, partition_workers: int, threads: int | None = None, key_budget: int | None = None) -> None:
        _check_backend()
        self.threads = threads or memory.usable_cpus()
        self.partition_workers = partition_workers
        self._pool = ThreadPoolExecutor(self.threads, "kernel")
        self._backend: Backend = CpuBackend(self._pool, self.threads)
        self._slots = threading.BoundedSemaphore(partition_workers)
        self.keys = KeyStore(self._pool, self.threads, key_budget or memory.limit_bytes() // 2)

    def prove(self, zkey: str, wtns: str, insecure_seed: str | None = None) -> Done:
        """A checked proof. ProverError, by name, when the files or the witness are refused."""
        begun = time.perf_counter()
        with self._slots:
            started = time.perf_counter()
            key = self.keys.get(zkey)
            loaded = time.perf_counter()
            proof, public, phases = prove(key, wtns, self._backend, self._pool, self.threads, insecure_seed)
        timings = {
            "queue": round((started - begun) * 1000, 3),
            "load": round((loaded - started) * 1000, 3),
            **phases,
        }
        return Done(proof_json(key.curve, proof), public_json(public), timings)

    def close(self) -> None:
        self._backend.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
