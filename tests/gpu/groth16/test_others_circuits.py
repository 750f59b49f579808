"""Circuits that others wrote (circomlib's Poseidon and SHA-256, and odd little ones), from circom's compiler to a
proof that snarkjs accepts: with our development keys, and with keys of snarkjs' own ceremony.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpu import cli
from gpu.circuits.poseidon import poseidon
from gpu.curve.params import BLS12381, BN254, Curve
from tests.gpu.conftest import ROOT

pytestmark = [pytest.mark.prover, pytest.mark.timeout(600)]

Snarkjs = Callable[..., subprocess.CompletedProcess[str]]
MODULES = ROOT / "tests/js/node_modules"

POSEIDON = """
include "circomlib/poseidon.circom";
template Hash() {
    signal input pair[2]; signal input factor; signal output hash; signal output scaled;
    hash <== Poseidon(2)(pair);
    scaled <== factor * hash;
    assert(factor != 7);
    log("factor", factor);
}
component main {public [factor]} = Hash();
"""
SHA256 = """
include "circomlib/sha256/sha256.circom";
component main = Sha256(8);
"""
# Equal and infinite points, unused inputs, wires in A but not in B.
ODD = """
template Odd() {
    signal input a; signal input b; signal input unused[2]; signal input bit; signal output out[3];
    for (var i = 0; i < 3; i++) { out[i] <== (a + b) * (a - b); }
    bit * (bit - 1) === 0;
    signal zero <== 0 * a;
    zero * a === 0;
}
component main {public [a]} = Odd();
"""
NOTHING_PUBLIC = """
template Factors() { signal input a; signal input b; a * b === 6; }
component main = Factors();
"""


@pytest.fixture
def circom(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Compiles a program in the test's folder; its `.r1cs` and `.wasm`."""
    node, program = shutil.which("node"), MODULES / ".bin/circom2"
    if node is None or not program.exists():
        pytest.skip("no circom here: install node, then run npm ci in tests/js")
    shutil.copytree(MODULES / "circomlib/circuits", tmp_path / "circomlib")  # it reads only below its folder

    def compile(source: str, curve: Curve, *options: str) -> tuple[Path, Path]:
        (tmp_path / "c.circom").write_text("pragma circom 2.0.0;\n" + source)
        command = [node, str(program), "c.circom", "--r1cs", "--wasm", "-p", curve.snarkjs_name, *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return tmp_path / "c.r1cs", tmp_path / "c_js/c.wasm"

    return compile


def run(command: object, *arguments: object) -> str:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def make_witness(folder: Path, wasm: Path, inputs: dict[str, object], snarkjs: Snarkjs) -> Path:
    """Our witness, which is snarkjs' to the byte."""
    (folder / "in.json").write_text(json.dumps(inputs))
    run(cli.witness, wasm, folder / "in.json", folder / "w.wtns")
    assert snarkjs("wtns", "calculate", wasm, "in.json", "theirs.wtns").returncode == 0
    assert (folder / "w.wtns").read_bytes() == (folder / "theirs.wtns").read_bytes()
    return folder / "w.wtns"


def prove_and_verify(folder: Path, zkey: Path, wtns: Path, snarkjs: Snarkjs) -> list[int]:
    """A proof of ours which snarkjs accepts; its public values."""
    run(cli.prove, zkey, wtns, folder / "proof.json", folder / "public.json")
    run(cli.vkey, zkey, folder / "vkey.json")
    assert "OK" in snarkjs("groth16", "verify", "vkey.json", "public.json", "proof.json").stdout
    return [int(value) for value in json.loads((folder / "public.json").read_text())]


def test_poseidon(curve: Curve, tmp_path: Path, circom, snarkjs: Snarkjs) -> None:
    r1cs, wasm = circom(POSEIDON, curve)
    wtns = make_witness(tmp_path, wasm, {"pair": ["0x10", str(10**30)], "factor": "-3"}, snarkjs)
    run(cli.setup, r1cs, tmp_path / "k.zkey", "--insecure")
    found = prove_and_verify(tmp_path, tmp_path / "k.zkey", wtns, snarkjs)
    assert found[1:] == [-3 * found[0] % curve.r, curve.r - 3]
    if curve is BN254:  # on the other curve circomlib keeps BN254's constants, reduced
        assert found[0] == poseidon(curve, 2).trace([16, 10**30])[-1]
    snarkjs("groth16", "prove", "k.zkey", "w.wtns", "proof.json", "public.json")
    assert "OK" in snarkjs("groth16", "verify", "vkey.json", "public.json", "proof.json").stdout
    (tmp_path / "in.json").write_text('{"pair": [1, 2], "factor": 7}')
    refused = CliRunner().invoke(cli.witness, [str(wasm), str(tmp_path / "in.json"), str(tmp_path / "no.wtns")])
    assert refused.exit_code == 1
    assert "assert failed: Error in template Hash" in refused.stderr
    assert not (tmp_path / "no.wtns").exists()


def test_sha256(tmp_path: Path, circom, snarkjs: Snarkjs) -> None:
    r1cs, wasm = circom(SHA256, BLS12381)
    wtns = make_witness(tmp_path, wasm, {"in": [0, 1, 1, 0, 0, 0, 0, 1]}, snarkjs)
    run(cli.setup, r1cs, tmp_path / "k.zkey", "--insecure")
    bits = prove_and_verify(tmp_path, tmp_path / "k.zkey", wtns, snarkjs)
    # The hash of the one byte "a".
    expected = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    assert f"{int(''.join(map(str, bits)), 2):064x}" == expected


def test_a_key_of_snarkjs_own_ceremony(curve: Curve, tmp_path: Path, circom, snarkjs: Snarkjs) -> None:
    r1cs, wasm = circom(ODD, curve, "--O2")
    inputs = {"a": 5, "b": 3, "unused": [1, 2], "bit": 1}
    wtns = make_witness(tmp_path, wasm, inputs, snarkjs)
    beacon = "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
    for step in (
        ("powersoftau", "new", curve.snarkjs_name, 4, "0.ptau"),
        ("powersoftau", "contribute", "0.ptau", "1.ptau", "-e=one"),
        ("powersoftau", "prepare", "phase2", "1.ptau", "2.ptau"),
        ("groth16", "setup", r1cs, "2.ptau", "0.zkey"),
        ("zkey", "contribute", "0.zkey", "1.zkey", "-e=two"),
        ("zkey", "beacon", "1.zkey", "2.zkey", beacon, 10),
    ):
        done = snarkjs(*step)
        assert done.returncode == 0, done.stdout
    for zkey in ("0.zkey", "1.zkey", "2.zkey"):
        assert prove_and_verify(tmp_path, tmp_path / zkey, wtns, snarkjs) == [16, 16, 16, 5]


def test_nothing_public(tmp_path: Path, circom, snarkjs: Snarkjs) -> None:
    r1cs, wasm = circom(NOTHING_PUBLIC, BN254)
    wtns = make_witness(tmp_path, wasm, {"a": 2, "b": 3}, snarkjs)
    run(cli.setup, r1cs, tmp_path / "k.zkey", "--insecure")
    assert prove_and_verify(tmp_path, tmp_path / "k.zkey", wtns, snarkjs) == []


def test_merkle_proofs(curve: Curve, tmp_path: Path, snarkjs: Snarkjs) -> None:
    said = run(cli.circuit, "merkle", 1100, tmp_path / "c.r1cs", tmp_path / "w.wtns", "--curve", curve.name)
    assert said.startswith("1 Poseidon inclusion proof of depth 2 in a tree of arity 8: ")
    run(cli.setup, tmp_path / "c.r1cs", tmp_path / "k.zkey", "--insecure")
    root, position = prove_and_verify(tmp_path, tmp_path / "k.zkey", tmp_path / "w.wtns", snarkjs)
    assert root.bit_length() > 200
    assert position < 64
