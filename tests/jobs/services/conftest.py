"""`up` as a child process on a state folder with a short path."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

STANDIN = ("-m", "tests.jobs.services.standin")
REPOSITORY = Path(__file__).parents[3]


def clean_env(**more: str) -> dict[str, str]:
    """Our environment without the settings of whoever runs the tests."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PROVEFLEET_")} | more


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """A folder that does not exist yet. In /tmp, since sockets need short paths."""
    base = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))
    yield base / "state"
    for folder in base.rglob("services.json"):
        for process in processes_of(folder.parent):
            process.kill()
    shutil.rmtree(base)


class Up:
    """A running `up`; `output` is all that it has printed so far."""

    def __init__(self, state_dir: Path, *argv: str, **env: str) -> None:
        self.state_dir = state_dir
        self._out = state_dir.with_suffix(f".{time.monotonic_ns()}.out")
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, *(argv or STANDIN)],
                cwd=REPOSITORY,
                env=clean_env(PROVEFLEET_STATE_DIR=str(state_dir), **env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    @property
    def output(self) -> str:
        return self._out.read_text()

    def wait_for(self, text: str, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.output:
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, f"{text!r} is missing in:\n{self.output}"
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Seconds until it ended."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(timeout=40)
        return time.monotonic() - began


def processes_of(state_dir: Path) -> list[psutil.Process]:
    """All processes that work for this state folder."""
    found = []
    for process in psutil.process_iter():
        try:
            # valkey writes its title over its environment, but works in a folder inside.
            here = process.environ().get("PROVEFLEET_STATE_DIR") == str(state_dir)
            here = here or Path(process.cwd()).is_relative_to(state_dir)
            if here and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def pid_of(state_dir: Path, name: str) -> int:
    """The one process of that name, which may only just be starting."""
    deadline = time.monotonic() + 5
    while True:
        for process in processes_of(state_dir):
            if process.name() == name:
                return process.pid
        assert time.monotonic() < deadline, f"no {name} runs on {state_dir}"
        time.sleep(0.05)
