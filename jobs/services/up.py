"""Starts the whole stack on one state folder, watches it, stops it: the code under `up` and `demo`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from jobs.services import control, known, ports, programs, state
from jobs.services.arrival import Arrival
from jobs.services.errors import ServiceError
from jobs.services.preparation import Preparation
from jobs.services.programs import Program
from jobs.services.supervision import Supervisor, last_lines
from jobs.settings import Settings, fill, given_settings

STOP_S = 29.0  # 8 s for the control plane, 20 s for the stores, see programs.py
PREDECESSOR_S = 40.0
GIVEN_UP_RETRY_S = 30.0
Tell = Callable[[str], None]


class Interrupted(Exception):
    """The operator asked for the end while we were starting."""


@dataclass(frozen=True)
class Started:
    """What an operator needs to know about a stack that runs."""

    settings: Settings
    first_password: str | None

    @property
    def site_url(self) -> str:
        return f"http://{self.settings.site_bind}"


class Stack:
    """One `up`. `start`, `watch` until someone asks for the end, `stop` always."""

    def __init__(self, tell: Tell, app: Callable[[Settings], Sequence[Program]] = programs.app) -> None:
        self._tell = tell
        self._app = app
        self._supervisor: Supervisor | None = None
        self._lock: state.Lock | None = None
        self._known: known.Known | None = None
        self.asked_to_stop = False

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """For signal.signal: asks for the end. Only a flag, since it may come at any instruction."""
        self.asked_to_stop = True

    def start(self) -> Started:
        """Returns when every part works. Raises ServiceError or Interrupted, with nothing left running."""
        try:
            return self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> Started:
        os.umask(0o077)
        given = given_settings()
        state.prepare(given.state_dir)
        self._lock = self._acquire(given.state_dir)
        state.check_space(given.state_dir)
        state.private_folder(given.sockets_dir)
        settings = self._settle(given)
        self._lock.describe(f"http://{settings.site_bind}")
        assert self._known is not None
        stores = programs.stores(given, settings, self._known)
        everything = [*stores, *self._app(settings)]
        self._supervisor = Supervisor(given.state_dir, given.sockets_dir, everything)
        self._supervisor.start(self._lock)
        first_password = self._start_stores(settings, stores)
        self._start_programs([p for p in everything if p.group == programs.APP])
        return Started(settings, first_password)

    def _acquire(self, folder: Path) -> state.Lock:
        lock = state.Lock(folder)
        deadline = time.monotonic() + PREDECESSOR_S
        told = False
        while not lock.acquire():
            holder = lock.holder()
            if holder and holder.alive:
                lock.close()
                raise ServiceError(
                    f"`provefleet up` already runs on {folder}",
                    f"pid {holder.pid}, its site is {holder.site_url}",
                    "Use that one, stop it with Ctrl-C, or set PROVEFLEET_STATE_DIR to another folder",
                )
            if time.monotonic() > deadline:
                lock.close()
                raise ServiceError(
                    f"the services of an earlier `up` on {folder} don't stop",
                    f"they still hold {state.LOCK} after {PREDECESSOR_S:.0f} s",
                    f"See {folder / 'log' / 'supervisord.log'}, or end them: fuser -k {folder / state.LOCK}",
                )
            if not told:
                self._tell("an earlier `up` was killed; waiting until its services have stopped (up to 30 s)")
                told = True
            self._pause(0.2)
        self._wait_for_leftovers(folder)
        return lock

    def _wait_for_leftovers(self, folder: Path) -> None:
        """Programs outlive supervisord only when it was killed too; they got SIGTERM then."""
        deadline = time.monotonic() + programs.STORE_STOP_S
        if state.programs_left(folder):
            self._tell("supervisord was killed; waiting until its programs have stopped (up to 20 s)")
        while state.programs_left(folder) and time.monotonic() < deadline:
            self._pause(0.2)
        state.kill_leftovers(folder)

    def _settle(self, given: Settings) -> Settings:
        """Ports and keys: known ones are kept, missing ones made and written down."""
        for bind, name in (
            (given.site_bind, "PROVEFLEET_SITE_BIND"),
            (given.agent_bind, "PROVEFLEET_AGENT_BIND"),
        ):
            if bind:
                ports.require(bind, name)
        before = known.read(given.state_dir)
        self._known, notes = ports.choose(
            before or known.generate(),
            site=not given.site_bind,
            agent=not given.agent_bind,
            s3=not given.s3_endpoint,
        )
        for note in notes:
            self._tell(note)
        if self._known != before:
            known.write(given.state_dir, self._known)
        return fill(given, self._known)

    def _start_stores(self, settings: Settings, stores: Sequence[Program]) -> str | None:
        """Stores and schema at the same time, then the bucket; the first admin's password if one was made."""
        with Preparation(settings.state_dir, ["database", "redis", "archive"]) as rest:
            # Redis is asked by `rest` too, but after the schema: by then the embedded one has been up for long.
            self._start_programs(stores)
            while rest.running:
                self._pause(0.05)
            return rest.password()

    def _start_programs(self, wanted: Sequence[Program]) -> None:
        assert self._supervisor is not None
        for program in wanted:
            self._supervisor.control.start(program.group, program.name)
        Arrival(self._supervisor, wanted).wait(self._pause)

    def _pause(self, seconds: float) -> None:
        if self.asked_to_stop:
            raise Interrupted
        time.sleep(seconds)

    def watch(self, each: Callable[[], bool] = lambda: True) -> None:
        """Until the end is asked for, or `each`, called every second, says False: says what dies and comes back,
        and starts again what supervisord gave up. Raises ServiceError when supervisord itself is gone."""
        assert self._supervisor is not None
        seen: dict[str, control.Process] = {}
        given_up: dict[str, float] = {}
        while not self.asked_to_stop and each():
            if not self._supervisor.alive:
                raise ServiceError(
                    "supervisord ended",
                    "somebody killed it",
                    "All services stop now; start again with: provefleet up",
                )
            try:
                self._look(self._supervisor, seen, given_up)
            except control.Unreachable as error:
                self._tell(f"supervisord does not answer: {error}")
            time.sleep(1)

    def _look(self, supervisor: Supervisor, seen: dict[str, control.Process], given_up: dict[str, float]) -> None:
        for now in supervisor.control.processes():
            before = seen.get(now.name)
            seen[now.name] = now
            if before and before.pid and now.pid != before.pid:
                self._tell(f"{now.name} (pid {before.pid}) ended" + (f": {now.note}" if not now.pid else ""))
            if before and now.pid and now.pid != before.pid:
                self._tell(f"{now.name} was started again (pid {now.pid})")
            if now.state != "FATAL":
                given_up.pop(now.name, None)
            elif time.monotonic() - given_up.setdefault(now.name, time.monotonic()) > GIVEN_UP_RETRY_S:
                log = supervisor.state_dir / "log" / f"{now.name}.log"
                self._tell(f"{now.name} can't be started ({last_lines(log, 2)}); trying again, see {log}")
                del given_up[now.name]
                supervisor.control.start(now.group, now.name)

    def stop(self) -> bool:
        """Ends everything in order, within 30 s. True when nothing had to be killed. Harmless when called twice."""
        clean = True
        if self._supervisor:
            clean = self._supervisor.stop(STOP_S, self._tell)
            self._remove_weed_sockets()
            self._supervisor = None
        if self._lock:
            self._lock.close()
            self._lock = None
        return clean

    def _remove_weed_sockets(self) -> None:
        """weed has a socket in /tmp for each gRPC port, whatever it is told, and leaves one behind."""
        assert self._known is not None
        for part in ("master", "volume", "filer", "s3"):
            port = self._known.s3_ports[f"{part}_grpc"]
            Path(f"/tmp/seaweedfs-{part}-grpc-{port}.sock").unlink(missing_ok=True)  # noqa: S108 - weed's own name


def listen_for_the_end(stack: Stack) -> None:
    """Ctrl-C, SIGTERM and a closed terminal all mean: stop in order."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stack.on_signal)
