"""`python -m gpu.cuda.check` from end to end, on an emulated GPU and at toy sizes; its inputs against definitions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpu.cuda.check.__main__ import STEPS, main
from gpu.cuda.check.inputs import Impulses, make_tile, random_scalars
from gpu.curve.group import kernel_g1, kernel_g2
from gpu.curve.params import Curve
from gpu.ntt.domain import domain

pytestmark = [pytest.mark.prover, pytest.mark.timeout(900)]  # the first to come compiles the kernels


def run(folder: Path, *arguments: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], dict]:
    command = [sys.executable, "-m", "tests.gpu.cuda.emulated_check", "--json", str(folder / "out.json"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    return done, json.loads((folder / "out.json").read_text())


def test_the_whole_check(tmp_path: Path) -> None:
    done, out = run(tmp_path, "--patience", "10")
    assert done.returncode == 0, done.stdout + done.stderr
    assert out["passed"]
    assert list(out["steps"]) == list(STEPS)
    for name, step in out["steps"].items():
        assert step["passed"], name
        assert step["figures"], name
        assert name in done.stdout
    assert out["steps"]["bad_cases"]["figures"]["cases"] == 2 * 2 * 3 * 6


@pytest.mark.parametrize("step", ["fields", "transforms", "sums", "proofs"])
def test_a_gpu_that_errs_by_one_bit_is_found_out(step: str, tmp_path: Path) -> None:
    done, out = run(tmp_path, "--step", step, "--patience", "10", EMULATED_CHECK="wrong")
    assert done.returncode == 1
    assert not out["passed"]
    assert out["steps"][step]["error"].endswith("is wrong")
    assert "FAILED" in done.stdout


def test_a_step_that_hangs_is_ended(tmp_path: Path) -> None:
    done, out = run(tmp_path, "--step", "bad_cases", "--step", "versions", "--patience", "0.05")
    assert done.returncode == 1
    assert out["steps"]["bad_cases"]["error"] == "not done after 3 s"


def test_a_machine_without_a_gpu_is_told_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gpu.cuda.presence._DEVICE_NODES", (str(tmp_path / "nothing"),))
    assert main(["--json", str(tmp_path / "out.json")]) == 1
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 1
    assert "no NVIDIA GPU" in said.err
    assert not (tmp_path / "out.json").exists()


def test_known_answers_of_sums(curve: Curve) -> None:
    rng = np.random.default_rng(1)
    for group in (kernel_g1(curve), kernel_g2(curve)):
        tile = make_tile(group, 3, rng)
        scalars = random_scalars(8, rng)
        plain = [int.from_bytes(scalars[8 * i : 8 * i + 8].tobytes(), "little") for i in range(8)]
        repeated = tile.repeated(8)
        points = [group.decode(repeated, i) for i in range(8)]
        assert tile.sum(scalars) == group.reference.msm(points, plain)


def test_known_answers_of_transforms(curve: Curve) -> None:
    impulses = Impulses(curve, 16, (0, 5, 15), (7, 8, curve.r - 1))
    values = impulses.vector().view(np.uint64).copy()
    domain(curve, 16).to_odd_coset(values)
    for j in range(16):
        word = int.from_bytes(values[4 * j : 4 * j + 4].tobytes(), "little")
        assert word == curve.fr.to_montgomery(impulses.on_odd_coset(j))
