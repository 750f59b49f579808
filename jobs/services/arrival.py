"""Waits until programs that were just started are ready, or says why one is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from jobs.services import control, ready
from jobs.services.errors import ServiceError
from jobs.services.programs import Program
from jobs.services.supervision import Supervisor, last_lines


class Arrival:
    """Waits until programs that were started are ready, or says why one is not."""

    def __init__(self, supervisor: Supervisor, wanted: Sequence[Program]) -> None:
        self._supervisor = supervisor
        self._missing = {program.name: program for program in wanted}
        self._lacks: dict[str, str] = {}
        self._first_try: dict[str, int] = {}
        self._began = time.monotonic()

    def wait(self, pause: Callable[[float], None]) -> None:
        while self._missing:
            pause(0.1)
            for now in self._processes():
                program = self._missing.get(now.name)
                if program and self._arrived(program, now):
                    del self._missing[now.name]

    def _processes(self) -> list[control.Process]:
        try:
            return self._supervisor.control.processes()
        except control.Unreachable as error:
            if not self._supervisor.alive:
                raise ServiceError("supervisord ended", str(error), "Start again with: provefleet up") from error
            return []

    def _arrived(self, program: Program, now: control.Process) -> bool:
        if now.state in ("BACKOFF", "EXITED", "FATAL"):
            # Once may be bad luck (a port taken in this very second); twice is a fault.
            if now.state == "FATAL" or self._first_try.setdefault(now.name, now.started_s) != now.started_s:
                raise self._failure(program, "ends as soon as it is started")
            return False
        if now.state != "RUNNING" and (now.state != "STARTING" or program.ready is ready.running):
            lacks = f"it is {now.state.lower()}"
        else:
            lacks = program.ready()
        self._lacks[program.name] = lacks
        if lacks and time.monotonic() - self._began > program.start_timeout_s:
            raise self._failure(program, f"is not ready after {program.start_timeout_s:.0f} s: {lacks}")
        return not lacks

    def _failure(self, program: Program, why: str) -> ServiceError:
        log = self._supervisor.state_dir / "log" / f"{program.name}.log"
        said = last_lines(log, 4)
        return ServiceError(
            f"{program.name} does not start",
            f"it {why}" + (f"; it said: {said}" if said else ""),
            f"See {log}",
        )
