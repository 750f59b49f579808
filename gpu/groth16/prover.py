"""The Groth16 prover (Groth, EUROCRYPT 2016) on snarkjs' keys: witness in, checked proof out.

With z the witness: A = alpha + sum z_i A_i + r delta, B = beta + sum z_i B_i + s delta, and
C = sum over private i of z_i C_i + sum h_j H_j + s A + r B1 - r s delta, where h are the values of (a b - c)
on the odd coset. snarkjs' H points hold the Lagrange basis of that coset with the division by the vanishing
polynomial already in them.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from gpu.curve import reference
from gpu.curve.reference import Point
from gpu.errors import WitnessRefused
from gpu.field.kinds import kernel_field
from gpu.groth16 import own
from gpu.groth16.formats import Proof
from gpu.groth16.key import ProvingKey
from gpu.groth16.rows import accumulate_rows, first_not_reduced
from gpu.groth16.wtns import open_wtns
from gpu.msm.plan import Msm, pack, small
from gpu.ntt.domain import domain
from gpu.ntt.scalar import multiply, quotient_values


@dataclass
class Timings:
    """Milliseconds of each phase of one proof."""

    phases: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def mark(self, phase: str) -> None:
        """Everything since the last mark was `phase`."""
        now = time.perf_counter()
        self.phases[phase] = round((now - self._since) * 1000, 3)
        self._since = now


@dataclass(frozen=True)
class Synthesis:
    """A witness made ready: its values (plain, four words each), and a, b on the domain (Montgomery form)."""

    wtns: str
    witness: np.ndarray
    public: list[int]
    a: np.ndarray
    b: np.ndarray


def synthesise(key: ProvingKey, wtns: str, pool: Executor) -> Synthesis:
    """Reads a witness, checks it against the key, and multiplies it with the matrices.

    BadFile for a malformed witness, WitnessRefused for one of another circuit or curve.
    """
    facts = key.facts
    file, found = open_wtns(wtns)
    if found.curve is not facts.curve:
        raise WitnessRefused(
            f"{wtns}: the witness is for {found.curve.name}, the key {key.path} for {facts.curve.name}; "
            "use a witness and a key of the same circuit"
        )
    if found.n_witness != facts.n_vars:
        raise WitnessRefused(
            f"{wtns}: the witness has {found.n_witness} values, the key {key.path} has {facts.n_vars} "
            "variables; use a witness and a key of the same circuit"
        )
    fr = kernel_field(facts.curve.fr)
    witness = np.frombuffer(file.section(2), np.uint64).copy()
    bad = first_not_reduced(fr.marker, witness, facts.n_vars)
    if bad >= 0:
        raise file.bad(2, f"value {bad} is not below the field's modulus")
    public = [int.from_bytes(witness[4 * i : 4 * i + 4].tobytes(), "little") for i in range(facts.n_public + 1)]
    if public[0] != 1:
        raise file.bad(2, "the first value is not 1")

    def product(which: int) -> np.ndarray:
        matrix, out = key.matrices[which], np.zeros(4 * facts.domain_size, np.uint64)
        scratch = np.zeros(4, np.uint64)
        accumulate_rows(fr.marker, out, matrix.rows, matrix.columns, matrix.values, witness, len(matrix.rows), scratch)
        return out

    a, b = (part.result() for part in [pool.submit(product, which) for which in (0, 1)])
    return Synthesis(wtns, witness, public[1:], a, b)


def compute(key: ProvingKey, ready: Synthesis, pool: Executor, threads: int, blinding: tuple[int, int]) -> Proof:
    """The proof, not yet checked. Uses up `ready`. `blinding` is (r, s), secret and used once."""
    curve, w = key.curve, ready.witness
    size = key.facts.domain_size
    tables = domain(curve, size)
    marker = tables.kind.marker
    a, b, c = ready.a, ready.b, np.empty_like(ready.a)
    multiply(marker, c, a, b, size)
    moved = [pool.submit(tables.to_odd_coset, x) for x in (a, b, c)]
    sums = [
        Msm(group, points, scalars, pool, threads)
        for group, points, scalars in (
            (key.g2, key.b2, w),
            (key.g1, key.a, w),
            (key.g1, key.b1, w),
            (key.g1, key.c, w[4 * (key.facts.n_public + 1) :]),
        )
    ]
    for part in moved:
        part.result()
    quotient_values(marker, a, b, c, np.array([1, 0, 0, 0], np.uint64), size)
    h = Msm(key.g1, key.h, a, pool, threads)
    return _blind(key, [part.result() for part in (*sums, h)], blinding)


def _blind(key: ProvingKey, sums: list[Point], blinding: tuple[int, int]) -> Proof:
    """The proof from the sums over B2, A, B1, C and H: adds alpha, beta and the blinding terms."""
    b2, a, b1, c, h = sums
    r, s = blinding
    one, two, facts = reference.g1(key.curve), reference.g2(key.curve), key.facts

    def add_multiple(point: Point, base: Point, factor: int) -> Point:
        return one.add(point, small(key.g1, key.g1.encode([base]), [factor]))

    pi_a = add_multiple(one.add(a, facts.alpha1), facts.delta1, r)
    pi_b = two.add(two.add(b2, facts.beta2), small(key.g2, key.g2.encode([facts.delta2]), [s]))
    with_beta = add_multiple(one.add(b1, facts.beta1), facts.delta1, s)
    tail = small(key.g1, key.g1.encode([pi_a, with_beta, facts.delta1]), [s, r, -r * s])
    return Proof(pi_a, pi_b, one.add(one.add(c, h), tail))


def check(key: ProvingKey, ready: Synthesis, proof: Proof, pool: Executor, threads: int) -> None:
    """Verifies a proof of ours before anyone sees it. WitnessRefused when it does not hold."""
    ic_sum = Msm(key.g1, key.ic, pack([1, *ready.public]), pool, threads).result()
    if None in (proof.a, proof.b, proof.c) or not own.holds(key.vkey, ic_sum, proof):
        raise WitnessRefused(
            f"{ready.wtns}: the witness does not satisfy the circuit of {key.path} (the proof made from it does not "
            "verify); make the witness with this key's circuit"
        )


def draw_blinding(order: int, insecure_seed: str | None = None) -> tuple[int, int]:
    """(r, s) from the operating system; from a seed only where a test must repeat a proof, which then
    hides nothing.
    """
    if insecure_seed is None:
        return secrets.randbelow(order), secrets.randbelow(order)
    digest = hashlib.shake_256(insecure_seed.encode()).digest(128)
    return int.from_bytes(digest[:64], "big") % order, int.from_bytes(digest[64:], "big") % order


def prove(
    key: ProvingKey, wtns: str, pool: Executor, threads: int, insecure_seed: str | None = None
) -> tuple[Proof, list[int], dict[str, float]]:
    """A checked proof, its public values, and the milliseconds of synthesis, compute and verify."""
    timings = Timings()
    ready = synthesise(key, wtns, pool)
    timings.mark("synthesis")
    proof = compute(key, ready, pool, threads, draw_blinding(key.curve.r, insecure_seed))
    timings.mark("compute")
    check(key, ready, proof, pool, threads)
    timings.mark("verify")
    return proof, ready.public, timings.phases
