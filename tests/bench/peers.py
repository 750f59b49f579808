"""The peers of the prover as one would run them: snarkjs and groth16py as whole processes, the others as calls.

groth16py is GPL: it is installed for the benchmarks alone (requirements/bench.txt).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import py_arkworks_bls12381 as arkworks

from tests.bench.inputs import ROOT, Circuit
from tests.bench.timing import Measured, process

MODULES = ROOT / "tests" / "js" / "node_modules"
SNARKJS = MODULES / ".bin" / "snarkjs"
_GROTH16PY = """
import sys, groth16py
key, _ = groth16py.import_zkey(sys.argv[1])
groth16py.prove_wtns(key, sys.argv[2])
"""


def snarkjs_prove(circuit: Circuit, folder: Path) -> tuple[float, int]:
    return process(
        "node", SNARKJS, "groth16", "prove", circuit.zkey, circuit.wtns, folder / "s.json", folder / "sp.json"
    )


def snarkjs_accepts(circuit: Circuit, public: Path, proof: Path) -> bool:
    """The peer's opinion of our proof: a fast prover of wrong proofs would be no prover."""
    command = ["node", str(SNARKJS), "groth16", "verify", str(circuit.vkey), str(public), str(proof)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0 and "OK!" in done.stdout


def groth16py_prove(circuit: Circuit) -> tuple[float, int]:
    """arkworks, BN254 only, on one thread whatever it is given."""
    return process(sys.executable, "-c", _GROTH16PY, circuit.zkey, circuit.wtns)


def ffjavascript_fft(curve: str, log_n: int, rounds: int) -> Measured:
    """`Fr.fft` with a worker a core, as snarkjs calls it."""
    script = Path(__file__).with_name("ntt_peer.cjs")
    command = ["node", str(script), str(MODULES), curve, str(log_n), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Measured([float(line) for line in done.stdout.split()])


class ArkworksMsm:
    """The same G1 sum by arkworks, which takes points and scalars as objects of its own."""

    def __init__(self, points: list[tuple[int, int]], scalars: list[int]) -> None:
        self._points = [
            arkworks.G1Point.from_xy_bytes_unchecked_be(x.to_bytes(48, "big") + y.to_bytes(48, "big"))
            for x, y in points
        ]
        self._scalars = [arkworks.Scalar.from_le_bytes(value.to_bytes(32, "little")) for value in scalars]

    def run(self) -> arkworks.G1Point:
        return arkworks.G1Point.multiexp_unchecked(self._points, self._scalars)
