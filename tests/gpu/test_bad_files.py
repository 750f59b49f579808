"""Every malformed file is refused by name, in one line, in time, and leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpu import cli, memory
from gpu.curve.params import Curve
from gpu.errors import BadFile, ProverError, WitnessRefused
from gpu.groth16.engine import Engine
from gpu.groth16.formats import vkey_from_zkey
from gpu.groth16.setup import write_development_key
from gpu.groth16.wtns import inspect_wtns, read_public
from gpu.groth16.zkey import inspect_zkey
from tests.gpu import mutants
from tests.gpu.conftest import SNARKJS_FIXTURES, Files

pytestmark = pytest.mark.prover

LIMIT_S = 5


def refuse_all(cases: Iterable[tuple[str, bytes]], broken: Path, attempt) -> None:
    accepted = []
    for name, raw in cases:
        broken.write_bytes(raw)
        begun = time.process_time()
        try:
            attempt()
        except ProverError as error:
            message = str(error)
            assert "\n" not in message, name
            assert str(broken) in message, (name, message)
        else:
            accepted.append(name)
        assert time.process_time() - begun < LIMIT_S, name
    assert accepted == []


def test_zkeys(small: Files, curve: Curve, tmp_path: Path, engine: Engine) -> None:
    broken = tmp_path / "broken.zkey"
    engine.prove(str(small.zkey), str(small.wtns))  # a cold compilation is no part of the time limit
    cases = [*mutants.frames(small.zkey.read_bytes()), *mutants.zkeys(small.zkey, curve)]
    refuse_all(cases, broken, lambda: engine.prove(str(broken), str(small.wtns)))


def test_witnesses(small: Files, curve: Curve, tmp_path: Path, engine: Engine) -> None:
    broken = tmp_path / "broken.wtns"
    engine.prove(str(small.zkey), str(small.wtns))  # a cold compilation is no part of the time limit
    cases = [*mutants.frames(small.wtns.read_bytes()), *mutants.witnesses(small.wtns, curve)]
    refuse_all(cases, broken, lambda: engine.prove(str(small.zkey), str(broken)))


def test_circuits(small: Files, curve: Curve, tmp_path: Path) -> None:
    broken, out = tmp_path / "broken.r1cs", tmp_path / "out.zkey"
    cases = [*mutants.frames(small.r1cs.read_bytes()), *mutants.circuits(small.r1cs, curve)]
    refuse_all(cases, broken, lambda: write_development_key(broken, out))
    assert not out.exists()


def test_the_readers_of_the_controller_refuse_frames_too(small: Files, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    refuse_all(mutants.frames(small.zkey.read_bytes()), broken, lambda: inspect_zkey(broken))
    refuse_all(mutants.frames(small.zkey.read_bytes()), broken, lambda: vkey_from_zkey(broken))
    refuse_all(mutants.frames(small.wtns.read_bytes()), broken, lambda: inspect_wtns(broken))
    refuse_all(mutants.frames(small.wtns.read_bytes()), broken, lambda: read_public(broken, 1))


@pytest.mark.parametrize("path", ["/nowhere/at/all", "/", "/root\x00x", "/dev/null"])
def test_paths_that_are_no_file(path: str, small: Files, engine: Engine) -> None:
    with pytest.raises(BadFile):
        engine.prove(path, str(small.wtns))
    with pytest.raises(BadFile):
        engine.prove(str(small.zkey), path)


def test_files_of_another_circuit_or_curve(small: Files, curve: Curve, engine: Engine) -> None:
    own = SNARKJS_FIXTURES[curve.name] / "witness.wtns"
    foreign = SNARKJS_FIXTURES["bn254" if curve.name == "bls12381" else "bls12381"] / "witness.wtns"
    with pytest.raises(WitnessRefused, match="has 1002 values"):
        engine.prove(str(small.zkey), str(own))
    with pytest.raises(WitnessRefused, match="the witness is for"):
        engine.prove(str(small.zkey), str(foreign))
    with pytest.raises(BadFile, match="magic"):
        engine.prove(str(small.wtns), str(small.wtns))


def test_an_unsatisfying_witness_is_named_as_such(small: Files, curve: Curve, tmp_path: Path, engine: Engine) -> None:
    wrong = tmp_path / "wrong.wtns"
    wrong.write_bytes(dict(mutants.witnesses(small.wtns, curve))["unsatisfying"])
    with pytest.raises(WitnessRefused, match="does not satisfy the circuit"):
        engine.prove(str(small.zkey), str(wrong))


def test_a_refusal_of_the_command_is_one_line_and_leaves_no_file(small: Files, tmp_path: Path) -> None:
    truncated = tmp_path / "t.zkey"
    truncated.write_bytes(small.zkey.read_bytes()[:-100])
    proof, public = tmp_path / "proof.json", tmp_path / "public.json"
    result = CliRunner().invoke(cli.prove, [str(truncated), str(small.wtns), str(proof), str(public)])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert "section" in result.stderr
    assert sorted(tmp_path.iterdir()) == [truncated]


def test_nothing_is_left_when_one_of_two_outputs_cannot_be_written(small: Files, tmp_path: Path) -> None:
    proof = tmp_path / "proof.json"
    arguments = [str(small.zkey), str(small.wtns), str(proof), str(tmp_path / "no/such/folder/public.json")]
    result = CliRunner().invoke(cli.prove, arguments)
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_said_before_any_work(
    small: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "limit_bytes", lambda: 100 << 20)
    names = [str(tmp_path / name) for name in ("proof.json", "public.json")]
    result = CliRunner().invoke(cli.prove, [str(small.zkey), str(small.wtns), *names])
    assert result.exit_code == 1
    assert f"{small.zkey}: a proof with this key takes" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_usage_errors_exit_with_2_and_name_what_exists() -> None:
    result = CliRunner().invoke(cli.circuit, ["tower", "5", "a", "b"])
    assert result.exit_code == 2
    assert "chain" in result.stderr


def test_setup_wants_to_be_told_that_it_is_insecure(small: Files, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.setup, [str(small.r1cs), str(tmp_path / "k.zkey")])
    assert result.exit_code == 1
    assert "--insecure" in result.stderr
    assert list(tmp_path.iterdir()) == []
