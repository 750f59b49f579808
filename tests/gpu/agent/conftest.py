"""The real agent as a process, a stand-in prover, and a controller that it talks to over HTTP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu.protocol import Command, Task, Upload
from tests.fakes import payload
from tests.fakes.controller import BOOTSTRAP, Controller, ObjectServer, make_spec, wait_for

COMMAND = [
    sys.executable, payload.__file__, "--zkey", "{params}/key.zkey", "{wtns...}", "--out", "{proofs}",
    "--progress", "{progress}",
]  # fmt: skip
KEY = os.urandom(200_000)


class Rig:
    """One agent and its surroundings. `run` starts it; everything ends with the test."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.objects = ObjectServer()
        self.controller: Controller
        self.agent: subprocess.Popen[bytes]
        self.log = folder / "agent.log"
        self.work = folder / "work"

    def prepare(self, *do: str, proofs: int = 3, rounds: int = 1, **changes: Any) -> Controller:
        """A controller whose spec runs the stand-in with `do`, over `proofs` witnesses a round."""
        words = [part for word in do for part in ("--do", word)]
        params = changes.pop("params", None) or [self.objects.fetch("key.zkey", KEY)]
        spec = make_spec(changes.pop("command", [*COMMAND, *words]), params, proofs, **changes)
        tasks = {
            number: [
                Task(i, self.objects.fetch(f"r{number}w{i}.wtns", f"witness {number} {i}".encode()))
                for i in reversed(range(proofs))
            ]
            for number in range(1, rounds + 1)
        }
        self.controller = Controller(spec, tasks)
        self.controller.emergency = Upload(f"{self.objects.url}/emergency?sig=1", {"If-None-Match": "*"}, 600.0)
        return self.controller

    def run(self, **variables: str) -> None:
        """Start the agent, with `variables` more in its environment."""
        environment = {
            "PATH": os.environ["PATH"],
            "PROVEFLEET_AGENT_URL": self.controller.url,
            "PROVEFLEET_BOOTSTRAP_TOKEN": BOOTSTRAP,
            "PROVEFLEET_WORK_DIR": str(self.work),
            "PROVEFLEET_CACHE_DIR": str(self.folder / "cache"),
            "PROVEFLEET_LABEL": f"provefleet:test:{self.folder.name}",
            "HOST_SECRET": "not for the prover",
            **variables,
        }
        with self.log.open("ab") as log:
            self.agent = subprocess.Popen(
                [sys.executable, "-P", "-m", "gpu.agent"], env=environment, cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def ended(self, stage: str = "benchmark", round_number: int = 1) -> Any:
        """The progress that tells the end of a stage."""

        def told() -> Any:
            for _, lease in self.controller.leases:
                p = lease.progress
                if p.ended and p.stage == stage and p.round == round_number:
                    return p
            return None

        return wait_for(told, what=f"end of {stage}; agent says: {self.said()}")

    def seal_and_exit(self) -> int:
        """Let it seal, then end; its exit code."""
        self.controller.commands = [Command("seal", "the test is over")]
        wait_for(lambda: self.controller.seals, what=f"seal; agent says: {self.said()}")
        self.controller.commands = [Command("exit")]
        return self.agent.wait(10)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def bench(self) -> bytes:
        return bytes(self.controller.raw.get("bench", b""))

    def end(self) -> None:
        if hasattr(self, "agent") and self.agent.poll() is None:
            os.killpg(self.agent.pid, signal.SIGKILL)
            self.agent.wait()
        if hasattr(self, "controller"):
            self.controller.close()
        self.objects.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.end()
    assert not hasattr(rig, "controller") or rig.controller.troubles == []
