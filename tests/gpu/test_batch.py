"""Batch verification: the same verdicts as one by one, whatever is in the batch."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from gpu import cli
from gpu.curve.endomorphism import endomorphisms
from gpu.curve.group import kernel_g1, kernel_g2
from gpu.curve.params import Curve
from gpu.curve.reference import g1, g2
from gpu.errors import ProofRejected
from gpu.groth16 import own
from gpu.groth16.formats import Proof, VerificationKey, parse_proof, parse_public, parse_vkey, proof_json
from gpu.pairing.weights import weighted
from tests.gpu.conftest import SNARKJS_FIXTURES
from tests.gpu.points import outside_subgroup

pytestmark = pytest.mark.prover

Statement = tuple[list[int], Proof]


def load(curve: Curve) -> tuple[VerificationKey, Statement]:
    folder = SNARKJS_FIXTURES[curve.name]
    vkey, public, proof = (json.loads((folder / f"{name}.json").read_text()) for name in ("vkey", "public", "proof"))
    key = parse_vkey(vkey)
    return key, (parse_public(public, key), parse_proof(proof, key.curve))


def rerandomised(key: VerificationKey, statement: Statement, rng: random.Random) -> Statement:
    """Another proof of the same values: (A/r, rB + r s delta, C + s A), Groth16's malleability."""
    one, two, r = g1(key.curve), g2(key.curve), key.curve.r
    k, s = rng.randrange(1, r), rng.randrange(r)
    public, proof = statement
    b = two.add(two.mul(proof.b, k), two.mul(key.delta2, k * s))
    return public, Proof(one.mul(proof.a, pow(k, -1, r)), b, one.add(proof.c, one.mul(proof.a, s)))


def verdicts(key: VerificationKey, items: list[Statement]) -> list[bool]:
    return [verdict is None for verdict in own.check_many(key, items, 2)]


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 16, 20])
def test_good_proofs_hold_in_batches_of_every_size(n: int, curve: Curve) -> None:
    key, statement = load(curve)
    rng = random.Random(n)
    others = [rerandomised(key, statement, rng) for _ in range(3)]
    assert verdicts(key, [([statement, *others])[i % 4] for i in range(n)]) == [True] * n


@pytest.mark.parametrize("bad", [{0}, {19}, {7}, {8}, {3, 4}, {0, 8, 16}, set(range(20)), set(range(8, 16))])
def test_each_bad_proof_is_named_and_no_good_one(bad: set[int], curve: Curve) -> None:
    key, statement = load(curve)
    public, proof = statement
    rng = random.Random(1)
    wrong = [
        ([public[0] ^ 1], proof),
        (public, Proof(proof.c, proof.b, proof.a)),
        (public, Proof(g1(curve).neg(proof.a), proof.b, proof.c)),
    ]
    good = [statement, rerandomised(key, statement, rng)]
    items = [wrong[i % 3] if i in bad else good[i % 2] for i in range(20)]
    found = own.check_many(key, items, 2)
    assert {i for i, verdict in enumerate(found) if verdict is not None} == bad
    assert {str(found[i]) for i in bad} == {own.EQUATION}


def test_errors_that_cancel_do_not_fool_a_batch(curve: Curve) -> None:
    """C shifted by +D in one proof and by -D in the next; and two proofs with their C exchanged."""
    key, (public, proof) = load(curve)
    one = g1(curve)
    shift = one.mul(curve.g1, 987654321)
    moved = [(public, Proof(proof.a, proof.b, one.add(proof.c, d))) for d in (shift, one.neg(shift))]
    assert verdicts(key, [*moved, (public, proof)]) == [False, False, True]
    other = rerandomised(key, (public, proof), random.Random(5))[1]
    crossed = [(public, Proof(proof.a, proof.b, other.c)), (public, Proof(other.a, other.b, proof.c))]
    assert verdicts(key, [(public, proof), *crossed, (public, other)]) == [True, False, False, True]


def test_points_outside_their_subgroups_are_named(curve: Curve) -> None:
    key, (public, proof) = load(curve)
    one, two = g1(curve), g2(curve)
    stray = two.add(proof.b, outside_subgroup(kernel_g2(curve)))
    items = [(public, proof), (public, Proof(proof.a, stray, proof.c)), (public, proof)]
    if not curve.d_twist:
        stray1 = one.add(proof.a, outside_subgroup(kernel_g1(curve)))
        items += [(public, Proof(stray1, proof.b, proof.c)), (public, Proof(proof.a, proof.b, stray1))]
    found = [str(verdict) for verdict in own.check_many(key, items, 2)]
    names = ["None", "pi_b: ", "None", "pi_a: ", "pi_c: "]
    assert found == [name if name == "None" else name + own.OUTSIDE for name in names[: len(items)]]


def test_a_bad_key_is_refused(curve: Curve) -> None:
    key, statement = load(curve)
    stray = outside_subgroup(kernel_g2(curve))
    broken = VerificationKey(key.curve, key.alpha1, key.beta2, key.gamma2, stray, key.ic)
    with pytest.raises(ProofRejected, match="vk_delta_2: outside"):
        own.check_many(broken, [statement])


def test_weighted_points_equal_the_oracle(curve: Curve) -> None:
    group, rng = kernel_g1(curve), random.Random(7)
    lam, reference = endomorphisms(curve).lam, group.reference
    points = [reference.mul(curve.g1, rng.randrange(curve.r)) for _ in range(5)] + [None, curve.g1]
    pairs = [(0, 1), (1, 0), (2**64 - 1, 2**64 - 1), (3, 5), (0, 0), (7, 7), (1, 1)]
    words = np.array(pairs, np.uint64).reshape(-1)
    out = weighted(group, group.encode(points).view(np.uint64), words)
    for i, ((a, b), point) in enumerate(zip(pairs, points, strict=True)):
        assert group.decode(out, i) == reference.mul(point, a + b * lam)
    nothing = weighted(group, group.encode([None, curve.g1]).view(np.uint64), np.array([1, 1, 0, 0], np.uint64))
    assert not nothing.any()


def test_no_two_weights_are_the_same(curve: Curve) -> None:
    """The shortest vector of {(a, b): a + b lam = 0 mod r}, by Gauss' reduction, is longer than any difference."""
    lam = endomorphisms(curve).lam
    u, v = (curve.r, 0), (-lam, 1)
    while True:
        if u[0] ** 2 + u[1] ** 2 > v[0] ** 2 + v[1] ** 2:
            u, v = v, u
        norm = u[0] ** 2 + u[1] ** 2
        k = (2 * (u[0] * v[0] + u[1] * v[1]) + norm) // (2 * norm)
        if k == 0:
            break
        v = (v[0] - k * u[0], v[1] - k * u[1])
    assert (u[0] + u[1] * lam) % curve.r == 0
    # Two weights differ by less than 2^64 in a and in b, which is a vector shorter than 2^64.5.
    assert u[0] ** 2 + u[1] ** 2 > 2**129


def write(folder: Path, curve: Curve, statements: list[Statement]) -> None:
    for i, (public, proof) in enumerate(statements):
        (folder / str(i)).mkdir(parents=True)
        (folder / str(i) / "public.json").write_text(json.dumps([str(value) for value in public]))
        (folder / str(i) / "proof.json").write_text(json.dumps(proof_json(curve, proof)))


def test_the_command(curve: Curve, tmp_path: Path) -> None:
    _, (public, proof) = load(curve)
    vkey, folder = str(SNARKJS_FIXTURES[curve.name] / "vkey.json"), tmp_path / "out"
    write(folder, curve, [(public, proof)] * 12)
    run = CliRunner().invoke
    done = run(cli.verify, [vkey, "--batch", str(folder)])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "OK: 12 proofs\n", "")
    (folder / "3" / "public.json").write_text(json.dumps([str(public[0] + 1)]))
    (folder / "10" / "proof.json").write_text('{"pi_a":')
    (folder / "11" / "proof.json").unlink()
    done = run(cli.verify, [vkey, "--batch", str(folder)])
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["3", "10", "11"]
    assert own.EQUATION in lines[0]
    assert "is not JSON" in lines[1]
    assert done.stderr == f"Error: proof rejected: 3 of the 12 proofs in {folder}, see above\n"


@pytest.mark.parametrize("arguments", [["p"], ["--batch", "d", "p", "q"], []])
def test_wrong_usage_of_the_command(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli.verify, ["v.json", *arguments]).exit_code == 2


@pytest.mark.parametrize("name", ["nowhere", "empty", "file"])
def test_folders_with_nothing_to_verify(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    vkey = str(SNARKJS_FIXTURES["bn254"] / "vkey.json")
    done = CliRunner().invoke(cli.verify, [vkey, "--batch", str(tmp_path / name)])
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert name in done.stderr
