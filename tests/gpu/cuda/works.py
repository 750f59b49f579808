"""Proofs to be made on an emulated GPU: key, synthesised witness, and the sums that the CPU makes of them."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np

from gpu.groth16 import prover
from gpu.groth16.backend import CpuBackend, Sums, Synthesis
from gpu.groth16.key import ProvingKey, load_key
from gpu.groth16.ticket import Ticket
from tests.gpu.conftest import Files

_VECTORS = ("witness", "a", "b")


@dataclass(frozen=True)
class Work:
    """`ready` is to be copied from: back ends use up what they are given."""

    files: Files
    key: ProvingKey
    ready: Synthesis
    expected: Sums

    def copy(self, ticket: Ticket | None = None) -> Synthesis:
        return replace(self.ready, **self.vectors(), ticket=ticket or Ticket("job", 3))

    def vectors(self) -> dict[str, np.ndarray]:
        return {name: np.array(getattr(self.ready, name)) for name in _VECTORS}


def make_work(files: Files, pool: Executor) -> Work:
    key = load_key(str(files.zkey), pool, 2)
    ready = prover.synthesise(key, str(files.wtns), pool, Ticket())
    copies = {name: np.array(getattr(ready, name)) for name in _VECTORS}
    return Work(files, key, ready, CpuBackend(pool, 2).sums(key, replace(ready, **copies)))
