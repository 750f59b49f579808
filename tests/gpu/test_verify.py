"""The verifiers: what they accept, and that nothing else passes or escapes as another exception."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.curve.group import kernel_g1, kernel_g2
from gpu.curve.params import BLS12381, Curve
from gpu.errors import ProofRejected
from gpu.groth16 import own
from gpu.groth16.formats import parse_proof, parse_public, parse_vkey
from gpu.groth16.verify import _all_hold, load_vkey, verify_independent, verify_many
from tests.gpu.conftest import SNARKJS_FIXTURES
from tests.gpu.points import outside_subgroup


def load(curve: Curve, name: str) -> Any:
    return json.loads((SNARKJS_FIXTURES[curve.name] / f"{name}.json").read_text())


def verify_own(vkey: Any, public: Any, proof: Any) -> None:
    key = parse_vkey(vkey)
    own.check(key, parse_public(public, key), parse_proof(proof, key.curve))


@pytest.mark.parametrize("verify", [verify_independent, verify_own])
def test_snarkjs_proofs_hold_and_swapped_parts_do_not(verify: Any, curve: Curve) -> None:
    vkey, public, proof = (load(curve, name) for name in ("vkey", "public", "proof"))
    verify(vkey, public, proof)
    swapped = proof | {"pi_a": proof["pi_c"], "pi_c": proof["pi_a"]}
    with pytest.raises(ProofRejected, match="pairing equation"):
        verify(vkey, public, swapped)


def mutations(curve: Curve) -> list[tuple[str, Any, Any]]:
    """(name, public, proof): each must be rejected before any pairing."""
    public, proof = load(curve, "public"), load(curve, "proof")
    one, two = kernel_g1(curve).reference, kernel_g2(curve).reference
    p, r = curve.p, curve.r
    out: list[tuple[str, Any, Any]] = []

    def with_proof(name: str, key: str, value: Any) -> None:
        out.append((name, public, proof | {key: value}))

    x, y, _ = proof["pi_a"]
    with_proof("x + p", "pi_a", [str(int(x) + p), y, "1"])
    with_proof("x + 1", "pi_a", [str(int(x) + 1), y, "1"])
    with_proof("infinity", "pi_a", ["0", "1", "0"])
    with_proof("zeros", "pi_a", ["0", "0", "0"])
    with_proof("projective", "pi_a", [x, y, "2"])
    with_proof("integers", "pi_a", [int(x), int(y), 1])
    with_proof("leading zero", "pi_a", ["0" + x, y, "1"])
    with_proof("leading plus", "pi_a", ["+" + x, y, "1"])
    with_proof("space", "pi_a", [x + " ", y, "1"])
    with_proof("other digits", "pi_a", ["".join(chr(0x660 + int(d)) for d in x), y, "1"])
    with_proof("negative", "pi_a", ["-1", y, "1"])
    with_proof("hexadecimal", "pi_a", [hex(int(x)), y, "1"])
    with_proof("a million digits", "pi_a", ["9" * 1_000_000, y, "1"])
    with_proof("two coordinates", "pi_a", [x, y])
    with_proof("no list", "pi_c", {"x": x})
    with_proof("null", "pi_b", None)
    with_proof("flat pairs", "pi_b", [x, y, "1"])
    with_proof("G2 infinity", "pi_b", [["0", "0"], ["1", "0"], ["0", "0"]])
    with_proof("another curve", "curve", "bls12381" if curve.name == "bn254" else "bn128")
    with_proof("another protocol", "protocol", "plonk")
    with_proof("a list as curve", "curve", ["bn128"])
    stray = outside_subgroup(kernel_g2(curve))
    assert stray is not None
    assert two.on_curve(stray)
    with_proof("G2 stray", "pi_b", [[str(v) for v in stray[0]], [str(v) for v in stray[1]], ["1", "0"]])
    if curve is BLS12381:
        stray = outside_subgroup(kernel_g1(curve))
        assert stray is not None
        assert one.on_curve(stray)
        with_proof("G1 stray", "pi_c", [str(stray[0]), str(stray[1]), "1"])
    for name, value in (
        ("no values", []),
        ("one too many", [*public, "0"]),
        ("value + r", [str(int(public[0]) + r)]),
        ("integer", [int(public[0])]),
        ("object", {"0": public[0]}),
        ("nested", [[public[0]]]),
        ("text", public[0]),
        ("none", None),
    ):
        out.append((f"public: {name}", value, proof))
    out.extend((f"proof: {value!r}", public, value) for value in (None, [], "x", 3, {}))
    return out


@pytest.mark.parametrize("verify", [verify_independent, verify_own])
def test_malformed_proofs_and_values_are_rejected(verify: Any, curve: Curve) -> None:
    vkey = load(curve, "vkey")
    accepted = []
    for name, public, proof in mutations(curve):
        try:
            verify(vkey, public, proof)
        except ProofRejected:
            continue
        accepted.append(name)
    assert accepted == []


def test_malformed_keys_are_rejected(curve: Curve) -> None:
    vkey, public, proof = (load(curve, name) for name in ("vkey", "public", "proof"))
    for key in vkey:
        if key == "vk_alphabeta_12":
            continue  # nobody needs it, and snarkjs ignores it too
        for value in (None, [], {}, "x", 7, [["1"]], [None, None, None]):
            with pytest.raises(ProofRejected):
                verify_independent(vkey | {key: value}, public, proof)
        without = {name: value for name, value in vkey.items() if name != key}
        with pytest.raises(ProofRejected):
            verify_independent(without, public, proof)


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["0", "1", "2"])
)
LISTS = st.lists(SCALARS, max_size=3)
JUNK = SCALARS | LISTS | st.lists(LISTS, max_size=3) | st.dictionaries(st.text(max_size=5), LISTS, max_size=3)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_junk_anywhere_is_only_ever_rejected(data: st.DataObject) -> None:
    values = {name: load(BLS12381, name) for name in ("vkey", "public", "proof")}
    where = data.draw(st.sampled_from(["vkey", "public", "proof"]))
    target, junk = values[where], data.draw(JUNK)
    if isinstance(target, dict):
        key = data.draw(st.sampled_from([key for key in target if key != "vk_alphabeta_12"]))
        if isinstance(target[key], list) and data.draw(st.booleans()):
            target[key][data.draw(st.integers(0, len(target[key]) - 1))] = junk
        else:
            target[key] = junk
    else:
        values[where] = junk
    if values == {name: load(BLS12381, name) for name in values}:
        return
    with pytest.raises(ProofRejected):
        verify_independent(values["vkey"], values["public"], values["proof"])


def test_many_proofs_of_one_key(curve: Curve) -> None:
    vkey, public, proof = (load(curve, name) for name in ("vkey", "public", "proof"))
    wrong = copy.deepcopy(public)
    wrong[0] = str((int(wrong[0]) + 1) % curve.r)
    assert verify_many(vkey, []) == []
    assert verify_many(vkey, [(public, proof)] * 2) == [None] * 2
    verdicts = verify_many(vkey, [(public, proof), (wrong, proof), (public, {})])
    assert [verdict is None for verdict in verdicts] == [True, False, False]
    assert "pairing equation" in str(verdicts[1])
    with pytest.raises(ProofRejected):
        verify_many({}, [(public, proof)])


def test_a_batch_is_not_fooled_by_errors_that_cancel(curve: Curve) -> None:
    """C shifted by +D in one proof and by -D in the other: their plain product would hold."""
    vkey, public, proof = (load(curve, name) for name in ("vkey", "public", "proof"))
    group = kernel_g1(curve).reference
    c = (int(proof["pi_c"][0]), int(proof["pi_c"][1]))
    shift = group.mul(group.generator, random.Random(1).randrange(curve.r))
    items = []
    for moved in (group.add(c, shift), group.add(c, group.neg(shift))):
        assert moved is not None
        items.append((public, proof | {"pi_c": [str(moved[0]), str(moved[1]), "1"]}))
    key = load_vkey(vkey)
    statements = [(parse_public(values, key), parse_proof(value, curve)) for values, value in items]
    assert not _all_hold(key, statements)


def test_a_verification_leaves_no_raised_recursion_limit_behind() -> None:
    """py_ecc raises it to 100,000 when imported: hostile JSON would then crash the process instead of being refused."""
    folder = SNARKJS_FIXTURES["bn254"]
    script = (
        "import json, sys; from gpu.groth16.verify import verify_independent as v; "
        f"a = [json.load(open(f'{folder}/{{n}}.json')) for n in ('vkey', 'public', 'proof')]; v(*a)\n"
        "try: json.loads('[' * 10**6)\nexcept RecursionError: print('refused', sys.getrecursionlimit())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "refused 1000\n", done.stderr
