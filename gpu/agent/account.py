"""What the agent can tell of its work, at any moment: how each program ended, how long each stage took."""

from __future__ import annotations

import threading
from typing import Any

from gpu.agent.runner import Ended
from gpu.protocol import Process

MOST_PROCESSES = 200


class Account:
    """Thread-safe: the lease tells it to the warden while stages go on."""

    def __init__(self, image_digest: str):
        self.driver = self.cuda = ""
        self._image_digest = image_digest
        self._lock = threading.Lock()
        self._exit_codes: dict[str, int | None] = {}
        self._signals: dict[str, str] = {}
        self._stages_ms: dict[str, float] = {}
        self._processes: list[Process] = []

    def program_ended(self, name: str, stage: str, round_number: int, ended: Ended) -> None:
        """A program that we started is over."""
        process = Process(
            name, stage, round_number, ended.exit_code, ended.signal, ended.stopped, ended.core_dumped, ended.ran_s
        )
        with self._lock:
            self._processes = [*self._processes, process][-MOST_PROCESSES:]
            self._note(name, ended)

    def stage_ended(self, stage: str, ms: float, ended: Ended) -> None:
        """A stage is over, with how its last program ended."""
        with self._lock:
            self._stages_ms[stage] = round(ms, 3)
            self._note(stage, ended)

    def _note(self, name: str, ended: Ended) -> None:
        self._exit_codes[name] = ended.exit_code
        self._signals.pop(name, None)
        if ended.signal and not ended.stopped:
            self._signals[name] = ended.signal

    def told(self) -> dict[str, Any]:
        """The fields of this account that a seal and a last will have in common."""
        with self._lock:
            return {
                "exit_codes": dict(self._exit_codes),
                "signals": dict(self._signals),
                "stages_ms": dict(self._stages_ms),
                "processes": list(self._processes),
                "image_digest": self._image_digest,
                "driver": self.driver,
                "cuda": self.cuda,
            }
