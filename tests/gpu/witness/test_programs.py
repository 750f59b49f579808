"""Witness programs of every kind that nobody should trust: a named error in one line, in time, and no file."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from gpu.curve.params import BLS12381, BN254, Curve
from gpu.errors import BadFile, DeadlineExceeded, OutOfMemory, ProverError, Refused, WitnessRefused
from gpu.groth16.wtns import read_public
from gpu.witness.calculate import write_witness
from tests.gpu.witness.programs import FOREVER, circom1, circom2


def run(folder: Path, program: Path, text: str = '{"a": [2, 3]}', timeout_s: float | None = None) -> list[str]:
    """Writes out.wtns; the lines that the program logged."""
    (folder / "in.json").write_text(text)
    lines: list[str] = []
    write_witness(program, folder / "in.json", folder / "out.wtns", timeout_s, lines.append)
    return lines


def refusal(folder: Path, program: Path, text: str = '{"a": [2, 3]}', timeout_s: float | None = None) -> ProverError:
    begun = time.process_time()
    with pytest.raises(ProverError) as refused:
        run(folder, program, text, timeout_s)
    assert time.process_time() - begun < 5
    assert "\n" not in str(refused.value)
    assert not (folder / "out.wtns").exists()
    assert not list(folder.glob(".*"))
    return refused.value


def test_the_interface_of_circom_2(curve: Curve, tmp_path: Path) -> None:
    run(tmp_path, circom2(tmp_path / "p.wasm", curve))
    assert read_public(tmp_path / "out.wtns", 1) == [5]


def test_the_interface_of_circom_1(curve: Curve, tmp_path: Path) -> None:
    program = circom1(tmp_path / "p.wasm", curve)
    assert run(tmp_path, program, '{"a": [-5, "100000000000000000000"]}') == [str(curve.r - 5), str(10**20)]
    # This program keeps short values as they come: -5 is 2^32 - 5 in it.
    assert read_public(tmp_path / "out.wtns", 2) == [(1 << 32) - 5, 10**20]
    error = refusal_after(tmp_path, program, '{"b": 1}')
    assert "signal b: the circuit has no such input" in str(error)


def refusal_after(folder: Path, program: Path, text: str) -> ProverError:
    (folder / "out.wtns").unlink()
    return refusal(folder, program, text)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ('{"a": [6, 7]}', WitnessRefused, "assert failed: line 7; check the inputs"),
        ('{"a": [1, 2], "b": 1}', BadFile, "signal b: the circuit has no such input"),
        ('{"a": [1, 2, 3]}', BadFile, "signal a: has 3 values, the circuit takes 2"),
        ('{"a": 1}', BadFile, "signal a: has 1 values, the circuit takes 2"),
        ("{}", BadFile, "signals: give 0 values, the circuit takes 2"),
    ],
)
def test_inputs_that_do_not_fit(text: str, kind: type[ProverError], reason: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, circom2(tmp_path / "p.wasm", BN254), text)
    assert isinstance(error, kind)
    assert reason in str(error)


@pytest.mark.parametrize(
    ("changes", "kind", "reason"),
    [
        ({"version": "3"}, BadFile, "version that is not known"),
        ({"run": FOREVER}, DeadlineExceeded, "did not end within 0.5 s"),
        ({"init": FOREVER}, DeadlineExceeded, "--timeout"),
        ({"start": f"(func $s {FOREVER}) (start $s)"}, DeadlineExceeded, "did not end"),
        ({"run": "unreachable"}, BadFile, "unreachable"),
        ({"run": "(drop (i32.load (i32.const -4)))"}, BadFile, "out of bounds memory access"),
        ({"start": "(func $s (call $s)) (start $s)"}, BadFile, "call stack exhausted"),
        ({"start": "(func $s (call $error)) (start $s)"}, BadFile, "does not export"),
        ({"size": "100000000"}, BadFile, "more than its memory holds"),
        ({"size": "-1"}, BadFile, "more than its memory holds"),
        ({"one": "2"}, BadFile, "does not begin with 1"),
        ({"run": "(call $fail (i32.const 99))"}, WitnessRefused, "error 99"),
        ({"imports": '(import "wasi_snapshot_preview1" "fd_write" (func (param i32)))'}, BadFile, "fd_write"),
        ({"imports": '(import "runtime" "printDebug" (func (param i32) (result i32)))'}, BadFile, "printDebug"),
        ({"imports": '(import "runtime" "showSharedRWMemory" (global i32))'}, BadFile, "showSharedRWMemory"),
    ],
)
def test_hostile_programs(changes: dict[str, str], kind: type[ProverError], reason: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, circom2(tmp_path / "p.wasm", BLS12381, **changes), timeout_s=0.5)
    assert isinstance(error, kind), error
    assert reason in str(error)


def test_a_program_that_wants_all_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.memory.limit_bytes", lambda: 256 << 20)
    error = refusal(tmp_path, circom2(tmp_path / "p.wasm", BN254, pages="60000"))
    assert isinstance(error, OutOfMemory), error
    assert "more memory than the 128 MiB" in str(error)


def test_a_program_for_another_field(tmp_path: Path) -> None:
    prime = "\\01" + "\\00" * 30 + "\\40"
    error = refusal(tmp_path, circom2(tmp_path / "p.wasm", BN254, prime=prime))
    assert isinstance(error, Refused)
    assert "compile it with -p bn128" in str(error)


def test_a_program_that_logs_without_end_is_cut_short(tmp_path: Path) -> None:
    call = '(import "runtime" "showSharedRWMemory" (func $show)) (import "runtime" "writeBufferMessage" (func $text))'
    loop = "(global.set $char (i32.const 6)) (call $show) (call $text) (br $forever)"
    program = circom2(tmp_path / "p.wasm", BN254, imports=call, init=f"(loop $forever {loop})")
    (tmp_path / "in.json").write_text("{}")
    lines: list[str] = []
    with pytest.raises(DeadlineExceeded):
        write_witness(program, tmp_path / "in.json", tmp_path / "out.wtns", 0.5, lines.append)
    assert 0 < len(lines) <= 10_000
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("raw", [b"", b"\0asm", b"(module)", b"\0asm\1\0\0\0" + b"\xff" * 100, bytes(range(256)) * 40])
def test_files_that_are_no_programs(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "p.wasm").write_bytes(raw)
    assert str(tmp_path / "p.wasm") in str(refusal(tmp_path, tmp_path / "p.wasm"))


def test_truncated_and_flipped_programs(tmp_path: Path) -> None:
    whole = circom2(tmp_path / "p.wasm", BN254).read_bytes()
    for i in range(0, len(whole), 61):
        for raw in (whole[:i], whole[:i] + bytes([whole[i] ^ 0x11]) + whole[i + 1 :]):
            (tmp_path / "p.wasm").write_bytes(raw)
            # Some changes do no harm; all that may come out otherwise is an error of ours.
            with contextlib.suppress(ProverError):
                run(tmp_path, tmp_path / "p.wasm", timeout_s=0.2)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    for path in ("/nowhere", "/", "/root\0x", "/dev/null"):
        assert isinstance(refusal(tmp_path, Path(path)), BadFile)
