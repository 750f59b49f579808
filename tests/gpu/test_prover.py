"""Whole proofs: on snarkjs' keys and on ours, accepted by the independent verifiers and by snarkjs itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpu import cli
from gpu.circuits import chain
from gpu.curve.params import Curve
from gpu.errors import Refused
from gpu.groth16.engine import Engine
from gpu.groth16.formats import vkey_from_zkey
from gpu.groth16.verify import verify_independent
from tests.gpu.conftest import SMALL_N, SNARKJS_FIXTURES, Files

Snarkjs = Callable[..., subprocess.CompletedProcess[str]]


def test_proofs_with_a_ceremonys_key(snarkjs_files: Files, curve: Curve, engine: Engine) -> None:
    done = engine.prove(str(snarkjs_files.zkey), str(snarkjs_files.wtns))
    expected = json.loads((SNARKJS_FIXTURES[curve.name] / "public.json").read_text())
    assert done.public == expected == chain.public(1000, curve.name, 3)
    assert set(done.timings_ms) == {"queue", "load", "synthesis", "compute", "verify"}
    verify_independent(vkey_from_zkey(snarkjs_files.zkey), done.public, done.proof)


def test_proofs_with_our_own_key(small: Files, curve: Curve, engine: Engine) -> None:
    done = engine.prove(str(small.zkey), str(small.wtns))
    assert done.public == chain.public(SMALL_N, curve.name, 5)
    verify_independent(vkey_from_zkey(small.zkey), done.public, done.proof)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_smallest_circuits(n: int, curve: Curve, tmp_path: Path, engine: Engine) -> None:
    from gpu.groth16.setup import write_development_key

    chain.write_r1cs(n, curve.name, tmp_path / "c.r1cs")
    write_development_key(tmp_path / "c.r1cs", tmp_path / "k.zkey")
    for x in (0, 1, curve.r - 1):
        chain.write_wtns(n, curve.name, x, tmp_path / f"{x}.wtns")
        assert engine.prove(str(tmp_path / "k.zkey"), str(tmp_path / f"{x}.wtns")).public == chain.public(
            n, curve.name, x
        )


def test_no_two_proofs_are_alike_unless_a_seed_says_so(small: Files, engine: Engine) -> None:
    files = str(small.zkey), str(small.wtns)
    assert engine.prove(*files).proof != engine.prove(*files).proof
    assert engine.prove(*files, "seed").proof == engine.prove(*files, "seed").proof
    assert engine.prove(*files, "seed").proof != engine.prove(*files, "other").proof


def test_snarkjs_accepts_our_proofs_and_no_flipped_bit(
    snarkjs_files: Files, curve: Curve, tmp_path: Path, snarkjs: Snarkjs
) -> None:
    run = CliRunner().invoke
    names = [str(tmp_path / name) for name in ("proof.json", "public.json")]
    assert run(cli.prove, [str(snarkjs_files.zkey), str(snarkjs_files.wtns), *names]).exit_code == 0
    vkey = SNARKJS_FIXTURES[curve.name] / "vkey.json"
    assert "OK" in snarkjs("groth16", "verify", vkey, "public.json", "proof.json").stdout
    public = json.loads((tmp_path / "public.json").read_text())
    (tmp_path / "flipped.json").write_text(json.dumps([str(int(public[0]) ^ 1)]))
    refused = snarkjs("groth16", "verify", vkey, "flipped.json", "proof.json")
    assert refused.returncode != 0
    assert "OK" not in refused.stdout


def test_snarkjs_proves_with_our_key_and_we_accept_it(small: Files, tmp_path: Path, snarkjs: Snarkjs) -> None:
    run = CliRunner().invoke
    vkey = str(tmp_path / "vkey.json")
    assert run(cli.vkey, [str(small.zkey), vkey]).exit_code == 0
    assert snarkjs("groth16", "prove", small.zkey, small.wtns, "proof.json", "public.json").returncode == 0
    assert "OK" in snarkjs("groth16", "verify", vkey, "public.json", "proof.json").stdout
    result = run(cli.verify, [vkey, str(tmp_path / "public.json"), str(tmp_path / "proof.json")])
    assert (result.exit_code, result.stdout) == (0, "OK\n")


def test_the_verification_key_is_snarkjs_own_to_the_letter(snarkjs_files: Files, curve: Curve) -> None:
    expected = json.loads((SNARKJS_FIXTURES[curve.name] / "vkey.json").read_text())
    assert vkey_from_zkey(snarkjs_files.zkey) == expected


def test_the_chain_is_circoms_own_to_the_byte(snarkjs_files: Files, curve: Curve, tmp_path: Path) -> None:
    arguments = [
        "chain",
        "1000",
        str(tmp_path / "c.r1cs"),
        str(tmp_path / "w.wtns"),
        "--curve",
        curve.name,
        "--input",
        "3",
    ]
    assert CliRunner().invoke(cli.circuit, arguments).exit_code == 0
    assert (tmp_path / "c.r1cs").read_bytes() == snarkjs_files.r1cs.read_bytes()
    assert (tmp_path / "w.wtns").read_bytes() == snarkjs_files.wtns.read_bytes()


def test_a_back_end_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVEFLEET_PROVER_BACKEND", "abacus")
    with pytest.raises(Refused, match="no such back end"):
        Engine()
