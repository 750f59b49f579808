"""Steps of the check: whole proofs, in this process and in a GPU process of their own."""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpu.circuits import chain
from gpu.cuda.backend import DeviceProver, KeyPoints
from gpu.cuda.check.inputs import make_tile, random_scalars
from gpu.cuda.check.setting import SEED, Figures, Setting, ms, same
from gpu.cuda.client import CudaBackend
from gpu.cuda.plan import sections_of
from gpu.curve.group import kernel_g1, kernel_g2
from gpu.curve.params import CURVES, Curve
from gpu.groth16 import prover
from gpu.groth16.key import ProvingKey, load_key
from gpu.groth16.setup import write_development_key
from gpu.groth16.ticket import Ticket
from gpu.groth16.zkey import ZkeyFacts
from gpu.memory import usable_cpus
from gpu.ntt.domain import domain


def proofs(setting: Setting) -> Figures:
    """All sums of a proof, transforms included, for keys whose points are known multiples."""
    device, out = setting.make_device(), {}
    for curve in CURVES.values():
        for log_n in setting.sizes.proofs:
            rng, n = np.random.default_rng(SEED), 1 << log_n
            facts = _facts(curve, n)
            distinct = min(setting.sizes.distinct, n)
            tiles = {
                group.kind.degree: make_tile(group, distinct, rng) for group in (kernel_g1(curve), kernel_g2(curve))
            }
            sections = sections_of(facts)
            points = {each.name: tiles[each.group.kind.degree].repeated(each.n) for each in sections}
            witness = random_scalars(facts.n_vars, rng)
            a, b = (random_scalars(n, rng).view(np.uint64) for _ in range(2))  # some values' Montgomery form
            quotient = _quotient_on_the_cpu(curve, n, a, b)
            scalars = {"c": witness[8 * (facts.n_public + 1) :], "h": quotient}
            right = {each.name: tiles[each.group.kind.degree].sum(scalars.get(each.name, witness)) for each in sections}
            prover = DeviceProver(device)
            times = []
            for _ in range(4):
                begun = time.perf_counter()
                got = prover.sums(KeyPoints("key", facts, points, "key"), witness, a, b, lambda step: None)
                times.append(ms(begun))
                same(f"{curve.name} proof of 2^{log_n}", got, right)
            prover.close()
            out[f"{curve.name} proof 2^{log_n} first ms"] = round(times[0], 1)
            out[f"{curve.name} proof 2^{log_n} ms"] = round(statistics.median(times[1:]), 1)
    return out


def processes(setting: Setting) -> Figures:
    """Whole proofs by a GPU process, verified on the CPU; a process that is killed in the middle."""
    begun = time.perf_counter()
    backend = CudaBackend(setting.server)
    out: Figures = {"process start ms": ms(begun)}
    log_n = setting.sizes.verified
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(usable_cpus()) as pool:
        for curve in CURVES.values():
            job = _job(Path(folder), curve, (1 << log_n) - 4, pool)
            name = f"{curve.name} 2^{log_n}"
            out[f"{name} first proof ms"] = job.prove(backend, pool)
            out[f"{name} proof ms"] = job.prove(backend, pool)
            pid = backend.gpus()[0]["pid"]
            with ThreadPoolExecutor(1) as other:
                asked = other.submit(job.prove, backend, pool)
                while not asked.done() and backend.workers()[0]["state"] != "proving":
                    time.sleep(0.001)
                os.kill(pid, signal.SIGKILL)
                out[f"{name} proof with its process killed ms"] = asked.result()
            out[f"{name} proof after that ms"] = job.prove(backend, pool)
    backend.close()
    return out


@dataclass(frozen=True)
class _Job:
    key: ProvingKey
    wtns: str

    def prove(self, backend: CudaBackend, pool: Executor) -> float:
        """Milliseconds that the back end took. WitnessRefused when the proof does not verify."""
        ready = prover.synthesise(self.key, self.wtns, pool, Ticket())
        begun = time.perf_counter()
        proof = prover.compute(self.key, ready, backend, prover.draw_blinding(self.key.curve.r))
        took = ms(begun)
        prover.check(self.key, ready, proof, pool, usable_cpus())
        return took


def _job(folder: Path, curve: Curve, n: int, pool: Executor) -> _Job:
    r1cs, wtns, zkey = (str(folder / f"{curve.name}.{kind}") for kind in ("r1cs", "wtns", "zkey"))
    chain.write_r1cs(n, curve.name, r1cs)
    chain.write_wtns(n, curve.name, 3, wtns)
    write_development_key(r1cs, zkey)
    return _Job(load_key(zkey, pool, usable_cpus()), wtns)


def _facts(curve: Curve, n: int) -> ZkeyFacts:
    g1, g2 = curve.g1, curve.g2
    return ZkeyFacts(curve, n - 3, 1, n, 0, g1, g1, g2, g2, g1, g2)


def _quotient_on_the_cpu(curve: Curve, n: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Plain values, uint32, by the scalar back end."""
    out = a.copy()
    with ThreadPoolExecutor(usable_cpus()) as pool:
        domain(curve, n).quotient(out, b.copy(), pool, usable_cpus())
    return out.view(np.uint32)
