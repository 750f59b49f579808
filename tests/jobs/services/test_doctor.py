"""`doctor`: a check can't spoil the others, no secret is printed, a broken set-up is explained."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import SecretStr

from jobs.services import check_parts, known
from jobs.services.finding import Finding, findings, masked, ok
from jobs.settings import Settings
from tests.jobs.services.conftest import clean_env


def doctor(**env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "provefleet", "doctor"]
    return subprocess.run(argv, env=clean_env(**env), capture_output=True, text=True, timeout=60)


def good(_settings: Settings) -> Iterator[Finding]:
    yield ok("good", "fine")


def raises(_settings: Settings) -> Iterator[Finding]:
    yield ok("half", "so far")
    raise KeyError("surprise")


def hangs(_settings: Settings) -> Iterator[Finding]:
    time.sleep(3)
    yield ok("late", "")


def test_checks_are_isolated() -> None:
    began = time.monotonic()
    found = list(findings({"raises": raises, "hangs": hangs, "good": good}, Settings(), timeout_s=0.5))
    assert time.monotonic() - began < 2
    assert [(f.level, f.name) for f in found] == [("FAIL", "raises"), ("FAIL", "hangs"), ("ok", "good")]
    assert "KeyError: 'surprise'" in found[0].detail
    assert all(f.fix for f in found if f.level != "ok")


def test_secrets_are_masked() -> None:
    settings = Settings(
        vast_api_key=SecretStr("account-key"),
        redis_url=SecretStr("redis://:pass-word@cache:6379/0"),
        database_url=SecretStr("sqlite:////a/b.db"),
    )
    text = masked("key account-key, redis://:pass-word@cache:6379/0, pass-word, sqlite:////a/b.db", settings)
    assert "account-key" not in text
    assert "pass-word" not in text
    assert "sqlite:////a/b.db" in text


def test_before_the_first_up(state_dir: Path) -> None:
    done = doctor(PROVEFLEET_STATE_DIR=str(state_dir))
    assert done.returncode == 1
    assert "Start it: provefleet up" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "the check itself failed" not in done.stdout
    assert not state_dir.exists()


def test_broken_everywhere(state_dir: Path) -> None:
    state_dir.mkdir(mode=0o755)
    known.write(
        state_dir,
        known.generate().with_ports(site="127.0.0.1:1", agent="127.0.0.1:1", s3=dict.fromkeys(known.S3_PORTS, 1)),
    )
    (state_dir / "services.json").chmod(0o644)
    (state_dir / "provefleet.db").write_text("this is not a database, it only has its name")
    (state_dir / "run").mkdir()
    (state_dir / "run" / "valkey.sock").write_text("")
    done = doctor(PROVEFLEET_STATE_DIR=str(state_dir), PROVEFLEET_VAST_API_KEY="account-key")
    assert done.returncode == 1
    for name in (
        "services.json",
        "state folder",
        "up",
        "redis",
        "database",
        "archive",
        "site",
        "machine app",
        "workers",
    ):
        assert f"FAIL  {name}" in done.stdout
    assert "the check itself failed" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "account-key" not in done.stdout + done.stderr
    faults = done.stdout.count("FAIL  ")
    assert done.stdout.count(" -> ") >= faults


def test_wrong_setting(state_dir: Path) -> None:
    done = doctor(PROVEFLEET_STATE_DIR=str(state_dir), PROVEFLEET_WORKERS="many")
    assert done.returncode == 1
    assert "FAIL  settings" in done.stdout
    assert "PROVEFLEET_WORKERS" in done.stdout


def test_reach_is_told_with_its_remedy() -> None:
    """An account at a marketplace whose machines could not call us is a fault; without an account it is none."""
    key = SecretStr("account-key")
    _, told = check_parts.machine_app(Settings(vast_api_key=key, public_url="http://127.0.0.1:8001"))
    assert (told.level, "loopback" in told.detail, "docs/operations.md" in told.fix) == ("FAIL", True, True)
    _, told = check_parts.machine_app(Settings(public_url="http://127.0.0.1:8001"))
    assert told.level == "ok"
    _, told, relayed = check_parts.machine_app(
        Settings(vast_api_key=key, public_url="https://a.example.com", s3_public_endpoint="http://seaweedfs:8333")
    )
    assert (told.level, relayed.level, "relays" in relayed.detail) == ("ok", "ok", True)
