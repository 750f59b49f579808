"""Compiles the prover's kernels while the services start, so that a first demo does not wait for it later.

A tiny circuit goes through `circuit`, `setup` and `prove`: the kernels are the same for every size, and local
agents find them in the same cache. An acceleration only: what fails here shows itself again in the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

TIMEOUT_S = 120.0
STEPS = (
    ("circuit", "chain", "8", "circuit.r1cs", "witness.wtns", "--curve"),
    ("setup", "circuit.r1cs", "circuit.zkey", "--insecure"),
    ("prove", "circuit.zkey", "witness.wtns", "proof.json", "public.json"),
)


class Warming:
    """One background compilation for `curve`, into the kernel cache of `state_dir` (which must be there)."""

    def __init__(self, state_dir: Path, curve: str) -> None:
        self._cache = state_dir.resolve() / "cache" / "numba"
        self._curve = curve
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="warming", daemon=True).start()

    def stop(self) -> None:
        """End it, done or not."""
        self._stopped.set()
        if self._process is not None:
            self._process.kill()

    def _run(self) -> None:
        self._cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="provefleet-warming-") as folder:
            for step in STEPS:
                if self._stopped.is_set() or not self._step(folder, step):
                    return

    def _step(self, folder: str, step: tuple[str, ...]) -> bool:
        argv = [sys.executable, "-m", "provefleet", *step, *([self._curve] if step[-1] == "--curve" else [])]
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(self._cache)}
        self._process = subprocess.Popen(
            argv, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            return self._process.wait(TIMEOUT_S) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            return False
