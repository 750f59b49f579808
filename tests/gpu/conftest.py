"""What the prover's tests share: a pool, the fixtures made by snarkjs, and small keys made by ourselves."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpu.circuits import chain
from gpu.curve.params import BLS12381, BN254, Curve
from gpu.groth16.engine import Engine
from gpu.groth16.setup import write_development_key

ROOT = Path(__file__).resolve().parents[2]
SNARKJS_FIXTURES = {
    "bn254": ROOT / "tests/fixtures/bn254_chain1k",
    "bls12381": ROOT / "tests/fixtures/bls12381_chain1k",
}
SMALL_N = 6


@dataclass(frozen=True)
class Files:
    """A key, a witness and their circuit, on disk."""

    curve: Curve
    zkey: Path
    wtns: Path
    r1cs: Path


@pytest.fixture(scope="session")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.close()


@pytest.fixture(scope="session")
def kernel_compiler() -> None:
    """numba-cuda is there. Files import it inside their tests: `make test` collects them without it."""
    pytest.importorskip("numba_cuda", reason="no compiler of GPU kernels here: pip install 'provefleet[cuda-build]'")


@pytest.fixture(params=["bn254", "bls12381"])
def curve(request: pytest.FixtureRequest) -> Curve:
    return BN254 if request.param == "bn254" else BLS12381


@pytest.fixture
def snarkjs_files(curve: Curve) -> Files:
    """The 1,000 constraints fixture of this curve, with a key from a real ceremony."""
    folder = SNARKJS_FIXTURES[curve.name]
    return Files(curve, folder / "circuit.zkey", folder / "witness.wtns", folder / "circuit.r1cs")


@pytest.fixture(scope="session")
def all_small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    out = {}
    for each in (BN254, BLS12381):
        folder = tmp_path_factory.mktemp(each.name)
        files = Files(each, folder / "k.zkey", folder / "w.wtns", folder / "c.r1cs")
        chain.write_r1cs(SMALL_N, each.name, files.r1cs)
        chain.write_wtns(SMALL_N, each.name, 5, files.wtns)
        write_development_key(files.r1cs, files.zkey)
        out[each.name] = files
    return out


@pytest.fixture
def small(curve: Curve, all_small: dict[str, Files]) -> Files:
    """A chain of six constraints with a development key."""
    return all_small[curve.name]


@pytest.fixture
def snarkjs(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the real snarkjs in the test's folder."""
    node, program = shutil.which("node"), ROOT / "tests/js/node_modules/.bin/snarkjs"
    if node is None or not program.exists():
        pytest.skip("no snarkjs here: install node, then run npm ci in tests/js")

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [node, str(program), *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    return run
