"""What the agent's threads tell each other: progress on its way out, orders on their way in."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

from gpu.protocol import MAX_TEXT, Command, Progress


class Status:
    """The progress that the next lease carries. `changed` is set by what the controller should hear of at once."""

    def __init__(self, clock_ms: Callable[[], int]):
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._progress = Progress(stage="loading", moved_ms=clock_ms())
        self.changed = threading.Event()

    def get(self) -> Progress:
        with self._lock:
            return self._progress

    def begin(self, stage: str, round_number: int, total: int) -> None:
        """A stage starts: all counts at zero."""
        with self._lock:
            self._progress = Progress(stage, round_number, total=total, moved_ms=self._clock_ms())
        self.changed.set()

    def update(
        self, *, done: int | None = None, failed: int | None = None, total: int | None = None, note: str = ""
    ) -> None:
        """Counts of the running stage; what is not given stays."""
        with self._lock:
            old = self._progress
            self._progress = dataclasses.replace(
                old,
                done=old.done if done is None else done,
                failed=old.failed if failed is None else failed,
                total=old.total if total is None else total,
                note=note[:MAX_TEXT] or old.note,
                moved_ms=old.moved_ms if done in (None, old.done) else self._clock_ms(),
            )

    def end(self, exit_code: int | None = None, signal: str = "", error: str = "") -> None:
        """The stage ended, well or badly."""
        with self._lock:
            self._progress = dataclasses.replace(
                self._progress, ended=True, exit_code=exit_code, signal=signal, error=error[:MAX_TEXT]
            )
        self.changed.set()

    def sealing(self) -> None:
        """The evidence is being shipped; how the last stage ended stays."""
        with self._lock:
            self._progress = dataclasses.replace(self._progress, stage="sealing", moved_ms=self._clock_ms())
        self.changed.set()


class Orders:
    """What the agent was told to do, by its controller, its lease or a signal. Thread-safe; nothing is ever untold."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._round = 1
        self.seal_reason = ""
        self.exit = False
        self.expired = ""
        self.terminated = False

    def take(self, command: Command) -> str:
        """One command of a lease reply; the word that acknowledges it, "" for one that this version does not know."""
        with self._condition:
            word = command.name
            if command.name == "seal":
                self.seal_reason = self.seal_reason or command.reason or "ordered by the controller"
            elif command.name == "exit":
                self.exit = True
            elif command.name == "round":
                self._round = max(self._round, command.round)
                word = f"round:{command.round}"
            else:
                return ""
            self._condition.notify_all()
            return word

    def expire(self, why: str) -> None:
        """The lease is over."""
        with self._condition:
            self.expired = why
            self._condition.notify_all()

    def terminate(self) -> None:
        """SIGTERM. Sets a flag only: a signal handler may interrupt a thread that holds the condition."""
        self.terminated = True

    def is_terminated(self) -> bool:
        """True after SIGTERM."""
        return self.terminated

    def stop_work(self) -> str:
        """Why the running stage must stop; "" if it may go on."""
        if self.terminated:
            return "the agent was told to end (SIGTERM)"
        if self.exit:
            return "the controller said exit"
        return self.expired or self.seal_reason

    def is_over(self) -> bool:
        """True when nothing may be waited for any more."""
        return bool(self.terminated or self.exit or self.expired)

    def round_wanted(self) -> int:
        """The newest round asked for."""
        return self._round

    def wait(self, timeout_s: float) -> None:
        """Until something new is told, or for `timeout_s`."""
        with self._condition:
            self._condition.wait(timeout_s)
