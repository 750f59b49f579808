"""Ten thousand mutated proofs, five thousand a curve, every one rejected; a sample of them by other people's code."""

from __future__ import annotations

import collections
import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu.circuits import chain
from gpu.curve.params import BLS12381, Curve
from gpu.errors import ProofRejected
from gpu.groth16 import own
from gpu.groth16.engine import Engine
from gpu.groth16.formats import Proof, VerificationKey, parse_proof, parse_public, parse_vkey
from gpu.groth16.verify import verify_independent
from tests.gpu.conftest import SNARKJS_FIXTURES, Files
from tests.gpu.proof_mutants import Mutant, Mutator

pytestmark = pytest.mark.prover

COUNT = 5000
SEED = 20261130


@pytest.fixture
def mutator(curve: Curve, snarkjs_files: Files, engine: Engine, tmp_path: Path) -> Mutator:
    """Mutates snarkjs' own proof; the other proof of its key is ours, of another witness."""
    folder = SNARKJS_FIXTURES[curve.name]
    public, proof = (json.loads((folder / f"{name}.json").read_text()) for name in ("public", "proof"))
    chain.write_wtns(1000, curve.name, 17, tmp_path / "other.wtns")
    other = engine.prove(str(snarkjs_files.zkey), str(tmp_path / "other.wtns"))
    return Mutator(curve, public, proof, other.proof, random.Random(SEED))


def vkey_of(curve: Curve) -> dict:
    return json.loads((SNARKJS_FIXTURES[curve.name] / "vkey.json").read_text())


def accepted_by_us(key: VerificationKey, mutants: list[Mutant]) -> tuple[list[Mutant], collections.Counter[str]]:
    """The mutants that our verifier lets through, and how often each reason of rejection was given."""
    parsed: list[tuple[Mutant, tuple[list[int], Proof]]] = []
    reasons: collections.Counter[str] = collections.Counter()
    for mutant in mutants:
        try:
            parsed.append((mutant, (parse_public(mutant.public, key), parse_proof(mutant.proof, key.curve))))
        except ProofRejected as error:
            reasons[str(error).split(":")[-1].strip()] += 1
    verdicts = own.check_many(key, [statement for _, statement in parsed], 2)
    for verdict in verdicts:
        reasons["accepted" if verdict is None else str(verdict)] += 1
    return [mutant for (mutant, _), verdict in zip(parsed, verdicts, strict=True) if verdict is None], reasons


def test_mutated_proofs_are_all_rejected(mutator: Mutator) -> None:
    key = parse_vkey(vkey_of(mutator.curve))
    good = Mutant("none", mutator.public, mutator.proof)
    assert accepted_by_us(key, [good])[0] == [good]
    mutants = [mutator.draw() for _ in range(COUNT)]
    accepted, reasons = accepted_by_us(key, mutants)
    assert accepted == []
    assert sum(reasons.values()) == COUNT
    # The hard ones must be among them: points that are right by themselves, points that are outside the subgroup.
    assert reasons[own.EQUATION] > COUNT // 5
    assert sum(n for reason, n in reasons.items() if own.OUTSIDE in reason) > COUNT // 100
    assert reasons["not on the curve"] > COUNT // 10


def test_the_independent_verifier_rejects_a_sample(mutator: Mutator) -> None:
    """Many by arkworks; py_ecc takes a second for each that reaches the pairing, so only a few there."""
    vkey, count = vkey_of(mutator.curve), 150 if mutator.curve is BLS12381 else 12
    for mutant in (mutator.draw() for _ in range(count)):
        with pytest.raises(ProofRejected):
            verify_independent(vkey, mutant.public, mutant.proof)


def test_single_checks_reject_what_the_batch_rejects(mutator: Mutator) -> None:
    key = parse_vkey(vkey_of(mutator.curve))
    for mutant in (mutator.draw() for _ in range(40)):
        with pytest.raises(ProofRejected):
            own.check(key, parse_public(mutant.public, key), parse_proof(mutant.proof, key.curve))


def test_snarkjs_rejects_a_sample(
    mutator: Mutator, tmp_path: Path, snarkjs: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    vkey = SNARKJS_FIXTURES[mutator.curve.name] / "vkey.json"
    for mutant in (mutator.negated(), mutator.moved(), mutator.public_step()):
        (tmp_path / "public.json").write_text(json.dumps(mutant.public))
        (tmp_path / "proof.json").write_text(json.dumps(mutant.proof))
        done = snarkjs("groth16", "verify", vkey, "public.json", "proof.json")
        assert done.returncode != 0, mutant
        assert "OK" not in done.stdout, mutant
