"""Proofs that hold, without a prover: of a key whose secrets we know, and new ones from old ones.

A key's secrets (alpha, beta, gamma, delta, the IC scalars) let anyone simulate a proof of any public values
(Groth, EUROCRYPT 2016, section 3.2). And (A/s, s B, C) is a proof wherever (A, B, C) is one.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from gpu.curve.params import BLS12381
from gpu.curve.reference import g1, g2
from gpu.groth16.formats import Proof, VerificationKey, parse_proof, proof_json, vkey_json

ONE, TWO, R = g1(BLS12381), g2(BLS12381), BLS12381.r
ALPHA, BETA, GAMMA, DELTA, IC = 2, 3, 5, 7, (11, 13)

CHAIN = Path(__file__).parent.parent / "fixtures" / "bls12381_chain1k"


def _key() -> dict[str, Any]:
    def one(k: int) -> Any:
        return ONE.mul(ONE.generator, k)

    def two(k: int) -> Any:
        return TWO.mul(TWO.generator, k)

    return vkey_json(VerificationKey(BLS12381, one(ALPHA), two(BETA), two(GAMMA), two(DELTA), [one(k) for k in IC]))


VKEY = _key()


def simulated(public: list[str]) -> dict[str, Any]:
    """A fresh proof of one public value under `VKEY`."""
    a, b = secrets.randbelow(1 << 32) + 1, secrets.randbelow(1 << 32) + 1
    ic = IC[0] + IC[1] * int(public[0])
    c = (a * b - ALPHA * BETA - ic * GAMMA) * pow(DELTA, -1, R) % R
    proof = Proof(ONE.mul(ONE.generator, a), TWO.mul(TWO.generator, b), ONE.mul(ONE.generator, c))
    return proof_json(BLS12381, proof)


def another(proof: dict[str, Any], s: int) -> dict[str, Any]:
    """A different proof of the same statement, for each `s` from 2 on."""
    old = parse_proof(proof, BLS12381)
    return proof_json(BLS12381, Proof(ONE.mul(old.a, pow(s, -1, R)), TWO.mul(old.b, s), old.c))


def snarkjs(name: str) -> Any:
    """A JSON file of the fixture that snarkjs made: proof, public, vkey."""
    return json.loads((CHAIN / f"{name}.json").read_text())
