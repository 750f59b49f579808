"""The second opinion: Groth16 verification by other people's pairings, for the controller. Imports neither
numpy nor numba.

BLS12-381 is checked by py_arkworks_bls12381 (Rust), BN254 by py_ecc (Python). Both libraries are imported
when first needed, since a rented machine has neither. Equation (Groth, EUROCRYPT 2016): e(A, B) = e(alpha,
beta) e(sum of public IC, gamma) e(C, delta).
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from typing import Any

from gpu.curve.params import BLS12381, Curve
from gpu.curve.reference import Point, g2
from gpu.errors import ProofRejected
from gpu.groth16.formats import Proof, VerificationKey, parse_proof, parse_public, parse_vkey

EQUATION = "the pairing equation does not hold: wrong proof, wrong public values or wrong key"
RANDOM_BITS = 128  # a false batch passes with probability 2^-128 (Bellare, Garay, Rabin, EUROCRYPT 1998)

Statement = tuple[list[int], Proof]


def verify_independent(vkey: dict[str, Any], public: list[str], proof: dict[str, Any]) -> None:
    """Returns when the proof holds; otherwise raises ProofRejected with the reason, whatever the three values
    contain.
    """
    key = load_vkey(vkey)
    statement = _load_statement(key, public, proof)
    if not _all_hold(key, [statement]):
        raise ProofRejected(EQUATION)


def verify_many(vkey: dict[str, Any], items: Sequence[tuple[list[str], dict[str, Any]]]) -> list[str | None]:
    """For each (public, proof): None when it holds, else the reason. ProofRejected only for a bad
    verification key.

    All are checked as one random linear combination; when it fails, halves are checked until the bad ones are
    alone.
    """
    key = load_vkey(vkey)
    verdicts: list[str | None] = [None] * len(items)
    sound: list[tuple[int, Statement]] = []
    for i, (public, proof) in enumerate(items):
        try:
            sound.append((i, _load_statement(key, public, proof)))
        except ProofRejected as error:
            verdicts[i] = error.reason
    _halve(key, sound, verdicts)
    return verdicts


def load_vkey(vkey: Any) -> VerificationKey:
    """The parsed key, its points in their subgroups; ProofRejected otherwise."""
    key = parse_vkey(vkey)
    named = [("vk_alpha_1", key.alpha1), ("vk_beta_2", key.beta2), ("vk_gamma_2", key.gamma2)]
    named += [("vk_delta_2", key.delta2), *((f"IC[{i}]", point) for i, point in enumerate(key.ic))]
    for name, point in named:
        _check_subgroup(key.curve, name, point)
    return key


def _load_statement(key: VerificationKey, public: Any, proof: Any) -> Statement:
    values = parse_public(public, key)
    parsed = parse_proof(proof, key.curve)
    for name, point in (("pi_a", parsed.a), ("pi_b", parsed.b), ("pi_c", parsed.c)):
        _check_subgroup(key.curve, name, point)
    return values, parsed


def _check_subgroup(curve: Curve, name: str, point: Point) -> None:
    """ProofRejected for a point outside the subgroup of order r."""
    if point is None:
        return
    if curve is BLS12381:
        try:
            _arkworks_point(point)  # checks the subgroup itself, much faster than Python could
        except ValueError as error:
            raise ProofRejected(f"{name}: outside the subgroup of order r") from error
    elif isinstance(point[0], tuple) and not g2(curve).in_subgroup(point):
        # BN254's G1 has a prime order: there, every point of the curve is in the subgroup.
        raise ProofRejected(f"{name}: outside the subgroup of order r")


def _arkworks_point(point: Point) -> Any:
    """A G1 or G2 point as py_arkworks_bls12381 holds it; ValueError when it is not in its subgroup."""
    from py_arkworks_bls12381 import G1Point, G2Point

    if point is None:
        return G1Point.identity()
    if isinstance(point[0], tuple):
        return G2Point.from_xy_bytes_be(b"".join(part.to_bytes(48, "big") for pair in point for part in pair))
    return G1Point.from_xy_bytes_be(b"".join(value.to_bytes(48, "big") for value in point))


def _halve(key: VerificationKey, sound: list[tuple[int, Statement]], verdicts: list[str | None]) -> None:
    if not sound or _all_hold(key, [statement for _, statement in sound]):
        return
    if len(sound) == 1:
        verdicts[sound[0][0]] = EQUATION
        return
    middle = len(sound) // 2
    _halve(key, sound[:middle], verdicts)
    _halve(key, sound[middle:], verdicts)


def _all_hold(key: VerificationKey, statements: list[Statement]) -> bool:
    """Whether the product over all statements, each to the power of its own random weight, is one."""
    r = key.curve.r
    single = len(statements) == 1
    weights = [1 if single else secrets.randbits(RANDOM_BITS) | 1 for _ in statements]
    ic = [0] * len(key.ic)
    for weight, (values, _) in zip(weights, statements, strict=True):
        for i, value in enumerate([1, *values]):
            ic[i] = (ic[i] + weight * value) % r
    proofs = [proof for _, proof in statements]
    check = _arkworks if key.curve is BLS12381 else _py_ecc
    return check(key, weights, ic, proofs)


def _arkworks(key: VerificationKey, weights: list[int], ic: list[int], proofs: list[Proof]) -> bool:
    from py_arkworks_bls12381 import GT, G1Point, Scalar

    def scalar(value: int) -> Any:
        return Scalar.from_le_bytes(value.to_bytes(32, "little"))

    def total(points: Sequence[Point], factors: Sequence[int]) -> Any:
        return G1Point.multiexp_unchecked([_arkworks_point(p) for p in points], [scalar(k) for k in factors])

    left = [_arkworks_point(proof.a) * scalar(weight) for proof, weight in zip(proofs, weights, strict=True)]
    left += [
        -(_arkworks_point(key.alpha1) * scalar(sum(weights) % key.curve.r)),
        -total(key.ic, ic),
        -total([proof.c for proof in proofs], weights),
    ]
    right = [_arkworks_point(q) for q in (*(proof.b for proof in proofs), key.beta2, key.gamma2, key.delta2)]
    return bool(GT.pairing_check(left, right))


def _import_py_ecc() -> Any:
    """py_ecc raises Python's recursion limit to 100,000 when imported. Put back at once: with it, a hostile JSON
    text that is nested deeply enough overflows the C stack and ends the whole process.
    """
    limit = sys.getrecursionlimit()
    from py_ecc import optimized_bn128

    sys.setrecursionlimit(limit)
    return optimized_bn128


def _py_ecc(key: VerificationKey, weights: list[int], ic: list[int], proofs: list[Proof]) -> bool:
    bn = _import_py_ecc()

    def one(point: Point) -> Any:
        return bn.Z1 if point is None else (bn.FQ(point[0]), bn.FQ(point[1]), bn.FQ(1))

    def two(point: Point) -> Any:
        return bn.Z2 if point is None else (bn.FQ2(point[0]), bn.FQ2(point[1]), bn.FQ2([1, 0]))

    def total(points: Sequence[Point], factors: Sequence[int]) -> Any:
        out = bn.Z1
        for point, factor in zip(points, factors, strict=True):
            out = bn.add(out, bn.multiply(one(point), factor))
        return out

    pairs = [(two(proof.b), bn.multiply(one(proof.a), weight)) for proof, weight in zip(proofs, weights, strict=True)]
    pairs += [
        (two(key.beta2), bn.neg(bn.multiply(one(key.alpha1), sum(weights) % key.curve.r))),
        (two(key.gamma2), bn.neg(total(key.ic, ic))),
        (two(key.delta2), bn.neg(total([proof.c for proof in proofs], weights))),
    ]
    product = bn.FQ12.one()
    for q, p in pairs:
        product *= bn.pairing(q, p, final_exponentiate=False)
    return bool(bn.final_exponentiate(product) == bn.FQ12.one())
