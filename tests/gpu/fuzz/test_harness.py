"""The coverage-guided fuzzer finds nothing in a bounded number of runs, and would find something if it were there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.prover

RUNS = 1500


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has no build for this Python")
@pytest.mark.parametrize("kind", ["zkey", "wtns", "r1cs", "vkey", "proof", "public", "inputs"])
def test_bounded_runs(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.gpu.fuzz.harness", kind, f"-runs={RUNS}", "-seed=1", "-max_len=8192"]
    command.append(f"-artifact_prefix={tmp_path}/")
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"Done {RUNS} " in done.stderr
    # Instrumented code was reached, and more of it than the good files reach.
    first, last = (int(re.search(rf"#\d+\s+{word} +cov: (\d+)", done.stderr)[1]) for word in ("INITED", "DONE"))
    assert last > first > 5
    assert list(tmp_path.iterdir()) == []
