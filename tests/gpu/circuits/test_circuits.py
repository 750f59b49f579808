"""The built-in circuits: their witnesses satisfy their constraints, every constraint counts, and the hash is
circomlib's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpu.circuits import merkle
from gpu.circuits.poseidon import FULL_ROUNDS, PARTIAL_ROUNDS, poseidon
from gpu.circuits.system import Wiring
from gpu.curve.params import BLS12381, BN254, CURVES, Curve
from gpu.errors import Refused
from gpu.groth16.r1cs import Combination, Constraint


def unsatisfied(constraints: Sequence[Constraint], values: Sequence[int], r: int) -> Iterator[int]:
    def value(terms: Combination) -> int:
        return sum(factor * values[wire] for wire, factor in terms) % r

    for i, (a, b, c) in enumerate(constraints):
        if value(a) * value(b) % r != value(c):
            yield i


def test_poseidon_is_circomlibs() -> None:
    # circomlibjs' test of poseidon([1, 2]) and poseidon([1, 2, 3, 4])
    for inputs, expected in (
        ((1, 2), 0x115CC0F5E7D690413DF64C6B9662E9CF2A3617F2743245519E19607A4417189A),
        ((1, 2, 3, 4), 0x299C867DB6C1FDD79DCEFA40E4510B9837E60EBB1CE0663DBAA525DF65250465),
    ):
        assert poseidon(BN254, len(inputs)).trace(inputs)[-1] == expected


@pytest.mark.parametrize("arity", [2, 4, 8])
def test_round_numbers_are_those_of_the_papers_bounds(arity: int) -> None:
    """Equations (2) to (5) of eprint 2019/458 for x^5, with its margin: two full rounds, 7.5 % partial ones."""
    m, t, n = 128, arity + 1, BLS12381.r.bit_length()

    def secure(full: int, partial: int) -> bool:
        statistical = 6 if m <= (n - 3) * (t + 1) else 10
        interpolation = 0.43 * m + math.log2(t) - partial
        groebner = max(0.21 * n - partial, (0.14 * n - 1 - partial) / (t - 1))
        return full >= max(statistical, math.ceil(interpolation), math.ceil(groebner))

    found = [
        (t * (full + 2) + math.ceil(1.075 * partial), full + 2, math.ceil(1.075 * partial))
        for full in range(4, 20, 2)
        for partial in range(1, 200)
        if secure(full, partial)
    ]
    assert min(found)[1:] == (FULL_ROUNDS, PARTIAL_ROUNDS["bls12381"][arity])


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("arity", [2, 4, 8])
def test_a_hash_is_wired_as_it_is_computed(name: str, arity: int) -> None:
    curve = CURVES[name]
    hashing = poseidon(curve, arity)
    wiring = Wiring(curve.r, 1 + arity)
    out = hashing.wire_up(wiring, range(1, 1 + arity))
    values = [1, *range(5, 5 + arity)]
    values += hashing.trace(values[1:])
    assert len(values) == wiring.n_wires == out + 1
    assert len(wiring.constraints) == hashing.n_wires
    assert list(unsatisfied(wiring.constraints, values, curve.r)) == []


@pytest.mark.parametrize(("n", "arity", "proofs", "depth"), [(1, 8, 1, 1), (700, 2, 1, 2), (11_000, 8, 2, 10)])
def test_merkle_witnesses_satisfy_merkle_circuits(curve: Curve, n: int, arity: int, proofs: int, depth: int) -> None:
    made = merkle.fitting(n, curve.name, arity)
    assert (made.n_proofs, made.depth) == (proofs, depth)
    constraints = list(merkle._constraints(made))
    values = merkle.witness(n, curve.name, 7, arity)
    assert (len(values), len(constraints)) == (made.n_wires, made.n_constraints)
    assert list(unsatisfied(constraints, values, curve.r)) == []
    assert merkle.public(n, curve.name, 7, arity) == [str(value) for value in values[1 : 1 + made.n_public]]
    assert merkle.public(n, curve.name, 8, arity) != merkle.public(n, curve.name, 7, arity)
    # No wire is free: whichever is changed, some constraint breaks.
    for wire in range(1, made.n_wires, 1 + made.n_wires // (50 if proofs == 1 else 6)):
        changed = [*values[:wire], (values[wire] + 1) % curve.r, *values[wire + 1 :]]
        assert next(unsatisfied(constraints, changed, curve.r), None) is not None, wire


@pytest.mark.parametrize(("n", "arity"), [(0, 8), (merkle.MAX_N + 1, 8), (1000, 3)])
def test_circuits_that_there_are_not(n: int, arity: int, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be made; choose"):
        merkle.write_r1cs(n, "bn254", tmp_path / "c.r1cs", arity)
    assert list(tmp_path.iterdir()) == []
