"""The real stack, every program of it: `up`, `doctor`, `user add`, and what it costs in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.services.conftest import Up, clean_env, processes_of
from tests.jobs.services.test_doctor import doctor


@pytest.mark.timeout(240)
def test_the_real_stack(state_dir: Path) -> None:
    up = Up(state_dir, "-m", "provefleet", "up")
    up.wait_for("everything runs", 120)
    done = doctor(PROVEFLEET_STATE_DIR=str(state_dir))
    assert done.returncode == 0, done.stdout
    for part in ("site", "machine app", "workers", "reconcile", "redis", "database", "archive write", "process cron"):
        assert f"ok    {part} " in done.stdout

    argv = [sys.executable, "-m", "provefleet", "user", "add", "ann", "--role", "viewer"]
    env = clean_env(PROVEFLEET_STATE_DIR=str(state_dir))
    added = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert "ann (viewer) can sign in once" in added.stdout
    again = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert (again.returncode, "Traceback" in again.stderr) == (1, False)

    assert up.stop() < 30
    assert up.process.returncode == 0, up.output
    assert processes_of(state_dir) == []
