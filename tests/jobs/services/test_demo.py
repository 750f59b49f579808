"""`demo --provider vast` asks before it spends, and refuses what can't work before anything is rented."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from jobs.services.demo import Demo, Failed
from jobs.services.up import Started
from jobs.settings import Settings, fill
from tests.jobs.services.conftest import clean_env


def demo(state_dir: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "provefleet", "demo", "--provider", "vast", *words]
    env = clean_env(PROVEFLEET_STATE_DIR=str(state_dir), **env)
    return subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def test_without_a_terminal_it_wants_to_be_told_to_spend(state_dir: Path) -> None:
    done = demo(state_dir, "--max-dollars", "0.30", PROVEFLEET_VAST_API_KEY="account-key")
    assert done.returncode == 2
    assert "at most $0.30" in done.stderr
    assert "--yes" in done.stderr
    assert not state_dir.exists()


def test_without_an_account_nothing_is_started(state_dir: Path) -> None:
    done = demo(state_dir, "--yes", "--once")
    assert (done.returncode, done.stdout.count("\n")) == (1, 1)
    assert done.stdout.startswith("demo: failed run=none")
    assert "PROVEFLEET_VAST_API_KEY" in done.stdout
    assert not state_dir.exists()


def test_a_machine_that_could_not_reach_us_is_not_asked_for() -> None:
    settings = fill(Settings(vast_api_key=SecretStr("account-key"), public_url="http://127.0.0.1:8001"), None)
    with pytest.raises(Failed, match=r"PROVEFLEET_PUBLIC_URL is a loopback address .* docs/operations\.md"):
        Demo(Started(settings, None), "vast", 0.5)
