"""What the prover on a rented machine gets of the agent's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu.agent.environment import child_environment, take_own_instance


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


def test_a_container_that_is_started_again_gets_no_new_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {
        "CONTAINER_ID": "4711",
        "CONTAINER_API_KEY": "a-key",
        "PROVEFLEET_SELF_DESTROY_URL": "https://market.test/api/v0/instances/",
        "PROVEFLEET_HARD_DEADLINE_S": "600",
        "PROVEFLEET_EVIDENCE_DEADLINE_S": "20",
        "PROVEFLEET_WORK_DIR": str(tmp_path / "work"),
    }

    def left_s(at_s: float) -> float:
        monkeypatch.setattr("time.time", lambda: at_s)
        own = take_own_instance(dict(given))
        assert own is not None
        return own.hard_deadline_s

    assert [left_s(at) for at in (1000.0, 1400.0, 900.0, 9000.0)] == [600.0, 200.0, 600.0, 0.0]
