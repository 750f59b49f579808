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
from gpu.groth16 import batch
from gpu.groth16.backend import Backend, Synthesis
from gpu.groth16.formats import Proof
from gpu.groth16.key import ProvingKey
from gpu.groth16.rows import first_not_reduced, products
from gpu.groth16.ticket import Ticket
from gpu.groth16.wtns import open_wtns
from gpu.memory import usable_cpus
from gpu.msm.plan import Msm, pack, small


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


def synthesise(key: ProvingKey, wtns: str, pool: Executor, ticket: Ticket) -> Synthesis:
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

    a, b = products(fr, key.matrices, witness, ticket.over(pool), usable_cpus())
    return Synthesis(wtns, witness, public[1:], a, b, ticket)


def compute(key: ProvingKey, ready: Synthesis, backend: Backend, blinding: tuple[int, int]) -> Proof:
    """The proof, not yet checked: adds alpha, beta and the blinding terms to the back end's sums. Uses up
    `ready`. `blinding` is (r, s), secret and used once.
    """
    sums = backend.sums(key, ready)
    r, s = blinding
    one, two, facts = reference.g1(key.curve), reference.g2(key.curve), key.facts

    def add_multiple(point: Point, base: Point, factor: int) -> Point:
        return one.add(point, small(key.g1, key.g1.encode([base]), [factor]))

    pi_a = add_multiple(one.add(sums.a, facts.alpha1), facts.delta1, r)
    pi_b = two.add(two.add(sums.b2, facts.beta2), small(key.g2, key.g2.encode([facts.delta2]), [s]))
    with_beta = add_multiple(one.add(sums.b1, facts.beta1), facts.delta1, s)
    tail = small(key.g1, key.g1.encode([pi_a, with_beta, facts.delta1]), [s, r, -r * s])
    return Proof(pi_a, pi_b, one.add(one.add(sums.c, sums.h), tail))


def check(key: ProvingKey, ready: Synthesis, proof: Proof, pool: Executor, threads: int) -> None:
    """Verifies a proof of ours before anyone sees it. WitnessRefused when it does not hold."""
    ic_sum = Msm(key.g1, key.ic, pack([1, *ready.public]), pool, threads).result()
    if None in (proof.a, proof.b, proof.c) or not batch.holds(key.vkey, ic_sum, proof):
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
