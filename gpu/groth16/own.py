"""Verification with our own pairing: of one proof on Python ints, at once; of many by compiled kernels (`batch`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gpu.curve.pairing import pairing
from gpu.curve.params import CURVES
from gpu.curve.reference import Point, g1, g2
from gpu.errors import ProofRejected
from gpu.field.tower import Dozen
from gpu.groth16.formats import Proof, VerificationKey

OUTSIDE = "outside the subgroup of order r"
EQUATION = "the pairing equation does not hold: wrong proof, wrong public values or wrong key"


def holds(vkey: VerificationKey, ic_sum: Point, proof: Proof) -> bool:
    """Whether e(A, B) = e(alpha, beta) e(ic_sum, gamma) e(C, delta). Points must be in their subgroups."""
    engine = pairing(vkey.curve)
    neg = g1(vkey.curve).neg
    product = engine.product([(proof.a, proof.b), (neg(ic_sum), vkey.gamma2), (neg(proof.c), vkey.delta2)])
    return product == _alpha_beta(vkey.curve.name, vkey.alpha1, vkey.beta2)


def check(vkey: VerificationKey, public: list[int], proof: Proof) -> None:
    """Full verification of parsed values: subgroups, then the equation. ProofRejected with the reason."""
    one, two = g1(vkey.curve), g2(vkey.curve)
    for name, group, point in (
        ("vk_alpha_1", one, vkey.alpha1),
        ("vk_beta_2", two, vkey.beta2),
        ("vk_gamma_2", two, vkey.gamma2),
        ("vk_delta_2", two, vkey.delta2),
        ("pi_a", one, proof.a),
        ("pi_b", two, proof.b),
        ("pi_c", one, proof.c),
        *((f"IC[{i}]", one, point) for i, point in enumerate(vkey.ic)),
    ):
        if not group.in_subgroup(point):
            raise ProofRejected(f"{name}: {OUTSIDE}")
    if not holds(vkey, one.msm(vkey.ic, [1, *public]), proof):
        raise ProofRejected(EQUATION)


def check_many(
    vkey: VerificationKey, items: Sequence[tuple[list[int], Proof]], threads: int | None = None
) -> list[ProofRejected | None]:
    """For each (public values, proof) of parsed values: None when `check` would accept it, else what it would raise.

    What a caller may conclude: every rejection is certain. Every None is right but for a probability of 2^-127 for
    each set of proofs that was looked at (at most two sets a proof), over weights of 127 random bits that are drawn
    from the operating system in this call. Whoever made the proofs can't raise it, since the weights come after
    them. Order, repetitions and what else is in the batch make no difference. ProofRejected is raised for a bad
    verification key only. Takes all CPUs, or `threads`.
    """
    from gpu.groth16 import batch  # needs numba, which the check of a single proof does without

    return batch.check_many(vkey, items, threads)


@lru_cache(maxsize=16)
def _alpha_beta(curve: str, alpha: Point, beta: Point) -> Dozen:
    return pairing(CURVES[curve]).product([(alpha, beta)])
