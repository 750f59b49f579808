"""What the prover on a rented machine gets of the agent's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu.agent.environment import child_environment


def test_the_prover_gets_a_chosen_few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PROVEFLEET_CUDA_KERNELS", "CUDA_VISIBLE_DEVICES", "NUMBA_CACHE_DIR"):
        monkeypatch.setenv(name, "mine")
    for name in ("PROVEFLEET_BOOTSTRAP_TOKEN", "AWS_SECRET_ACCESS_KEY", "PROVEFLEET_AGENT_URL"):
        monkeypatch.setenv(name, "secret")
    got = child_environment(tmp_path, {"PROVEFLEET_PROVER_BACKEND": "cuda"})
    assert "secret" not in got.values()
    assert list(got.values()).count("mine") == 3
    assert got["PROVEFLEET_PROVER_BACKEND"] == "cuda"
    assert got["HOME"] == str(tmp_path)
