"""Coverage-guided fuzzing of the readers that are Python, by atheris.

    python -m tests.gpu.fuzz.harness zkey CORPUS_FOLDER -runs=100000 -max_len=8192

The first argument names the reader (zkey, wtns, r1cs, vkey, proof, public, inputs); the rest are libFuzzer's own:
-runs=N, -max_total_time=SECONDS, -seed=N, a folder to keep what it found in. A finding is a traceback, exit code 77 and
the file crash-..., which can be given as an argument to repeat it. Without a corpus it starts from small good files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import atheris

INSTRUMENTED = ["gpu.groth16", "gpu.witness", "gpu.verifying", "gpu.curve.reference", "json.decoder"]

with atheris.instrument_imports(include=INSTRUMENTED):
    from gpu.circuits import chain
    from tests.gpu.conftest import SNARKJS_FIXTURES
    from tests.gpu.fuzz.readers import light, refusal

    READERS = light()  # imports what it reads with


def seeds(kind: str, folder: Path) -> None:
    """Good files to start from, both curves."""
    for name, fixture in SNARKJS_FIXTURES.items():
        target = folder / f"{name}.{kind}"
        if kind in ("vkey", "proof", "public"):
            target.write_bytes((fixture / f"{kind}.json").read_bytes())
        elif kind == "wtns":
            chain.write_wtns(3, name, 5, target)
        elif kind == "r1cs":
            chain.write_r1cs(3, name, target)
        elif kind == "zkey":
            circuit = folder.with_name("c.r1cs")
            chain.write_r1cs(1, name, circuit)
            # In a process of its own: kernels can't be compiled from instrumented code.
            command = [sys.executable, "-m", "provefleet", "setup", str(circuit), str(target), "--insecure"]
            subprocess.run(command, check=True, timeout=120)
        else:
            target.write_text(json.dumps({"x": "3", "point.y": ["1", 2, [3, "0x4"]]}))


def main() -> None:
    kind = sys.argv.pop(1)
    reader = READERS[kind]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        place = Path(folder) / "fuzzed"
        start = Path(folder) / "seeds"
        start.mkdir()
        seeds(kind, start)

        def one(content: bytes) -> None:
            place.write_bytes(content)
            refusal(reader, place)

        atheris.Setup([*sys.argv, str(start)], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
