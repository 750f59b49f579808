"""What the benchmarks time inside this process: our calls beside a peer's library, on the same data, results equal."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gpu.curve.group import kernel_g1
from gpu.curve.params import BLS12381
from gpu.field import choice
from gpu.groth16 import own
from gpu.groth16.engine import Engine
from gpu.groth16.formats import parse_proof, parse_public, parse_vkey, read_json
from gpu.groth16.verify import verify_independent
from gpu.msm.fixed import FixedBase
from gpu.msm.plan import Msm, pack
from gpu.ntt.domain import domain
from tests.bench.inputs import Circuit
from tests.bench.peers import ArkworksMsm
from tests.bench.timing import BenchFailed, Run, call

DISTINCT_PROOFS = 20
ONE_BY_ONE = 5


def backend() -> str:
    """What `auto` takes on this machine."""
    engine = Engine()
    try:
        return engine.backend.name
    finally:
        engine.close()


def _random_scalars(n: int, order: int) -> list[int]:
    return [secrets.randbelow(order) for _ in range(n)]


def msm_bls12381(log_n: int) -> dict[str, Run]:
    """2^log_n random points and scalars, one thread each; scalars and points lie ready in each side's own form."""
    group, n = kernel_g1(BLS12381), 1 << log_n
    scalars = _random_scalars(n, BLS12381.r)
    words = pack(scalars)
    pool = ThreadPoolExecutor(1)
    multiples = pack(_random_scalars(n, BLS12381.r)).reshape(n, 4)
    points = np.frombuffer(FixedBase(group, BLS12381.g1).multiples(multiples, pool), np.uint8)
    theirs = ArkworksMsm([group.decode(points, i) for i in range(n)], scalars)

    def ours() -> Any:
        return Msm(group, points, words, pool, 1, lanes=choice.lanes("auto", [(BLS12381.fp, 1)])).result()

    x, y = ours()
    if theirs.run().to_xy_bytes_be() != x.to_bytes(48, "big") + y.to_bytes(48, "big"):
        raise BenchFailed("our sum and arkworks' differ")
    return {"ours": lambda: call(ours), "arkworks": lambda: call(theirs.run)}


def ntt_bls12381(log_n: int, threads: int) -> dict[str, Run]:
    """One transform: half of the pair that `to_odd_coset` is."""
    n = 1 << log_n
    tables = domain(BLS12381, n, choice.lanes("auto", [(BLS12381.fr, 1)]))
    values = pack(_random_scalars(n, BLS12381.r)).copy()
    pool = ThreadPoolExecutor(threads)

    def run() -> tuple[float, int]:
        seconds, _ = call(lambda: tables.to_odd_coset(values, pool, threads))
        return seconds / 2, 0

    run()
    return {"ours": run}


def verify_1000(circuit: Circuit) -> dict[str, Run]:
    """1,000 proofs (20 different ones, over and over; each is checked as if new) in one batch, and py_ecc on five."""
    key = read_json(circuit.vkey, "verification key")
    vkey = parse_vkey(key)
    engine = Engine()
    made = [engine.prove(str(circuit.zkey), str(circuit.wtns)) for _ in range(DISTINCT_PROOFS)]
    engine.close()
    statements = [(parse_public(done.public, vkey), parse_proof(done.proof, vkey.curve)) for done in made]
    thousand = statements * (1000 // DISTINCT_PROOFS)

    def ours() -> None:
        if any(verdict is not None for verdict in own.check_many(vkey, thousand)):
            raise BenchFailed("a good proof was rejected")

    def theirs() -> tuple[float, int]:
        seconds, _ = call(lambda: [verify_independent(key, done.public, done.proof) for done in made[:ONE_BY_ONE]])
        return seconds * 1000 / ONE_BY_ONE, 0

    ours()
    return {"ours": lambda: call(ours), "py_ecc": theirs}
