"""A running `provefleet up` in a folder of its own under /tmp, and the faults that can befall it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil
from redis.exceptions import RedisError

from jobs.context import Context
from jobs.market.providers.local import LocalProvider
from jobs.services import known
from jobs.services.control import Control, Unreachable
from jobs.settings import PREFIX, Settings, fill
from tests.jobs.services.conftest import Up, processes_of

T = TypeVar("T")

# On a machine that does other things besides, every budget may be stretched.
PATIENCE = float(os.environ.get("PROVEFLEET_TEST_PATIENCE", "1"))
POLL_S = 0.03
GROUPS = {"valkey": "stores", "weed": "stores"}
MAX_UPLOAD_BYTES = 4 << 20


def wait_for(what: str, look: Callable[[], T | None], budget_s: float) -> T:
    """The first truthy value of `look`. Fails, naming `what`, after `budget_s`."""
    deadline = time.monotonic() + budget_s * PATIENCE
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, f"not within {budget_s * PATIENCE:.0f} s: {what}"
        time.sleep(POLL_S)


def end_tree(process: psutil.Process) -> None:
    """SIGKILL to a process and everything below it, at once."""
    try:
        tree = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for one in tree:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue


class Rentals(threading.Thread):
    """Watches the folder of local instances the whole time: which machines ever were, under which label."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.labels: dict[str, set[str]] = {}
        self.over = threading.Event()
        self._seen: set[str] = set()
        self._folder = folder

    def run(self) -> None:
        while not self.over.wait(0.05):
            for file in self._folder.glob("[0-9a-f]*/instance.json"):
                if file.parent.name in self._seen:
                    continue
                try:
                    label = json.loads(file.read_text())["label"]
                except (OSError, ValueError, KeyError):
                    continue
                self._seen.add(file.parent.name)
                self.labels.setdefault(label, set()).add(file.parent.name)


class World:
    """One stack, with `env` more in its environment. `start` it, do something to it, `end` it."""

    def __init__(self, **env: str) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))
        self.state_dir = self.base / "s"
        # Two offers, so that two runs can go at once; three workers would only fight for two cores.
        self.env = {"PROVEFLEET_LOCAL_CORES_PER_OFFER": "1", "PROVEFLEET_MAX_UPLOAD_BYTES": str(MAX_UPLOAD_BYTES)} | env
        self._share_compiled_kernels()
        self.rentals = Rentals(self.state_dir / "local")
        self.up: Up

    def _share_compiled_kernels(self) -> None:
        """Compiling takes longer than all scenarios; whoever runs the tests has it done for the first one only."""
        mine = Path(os.environ.get("NUMBA_CACHE_DIR") or Path.home() / ".cache" / "provefleet" / "numba")
        mine.mkdir(mode=0o700, parents=True, exist_ok=True)
        # An empty folder is one that `up` takes; the link comes after its first start.
        self.kernels = mine

    def start(self) -> None:
        self.up = Up(self.state_dir, "-m", "provefleet", "up", **self.env)
        self.up.wait_for("everything runs", 120 * PATIENCE)
        cache = self.state_dir / "cache"
        if not cache.exists():
            cache.mkdir(mode=0o700)
            (cache / "numba").symlink_to(self.kernels)
        given = {name.removeprefix(PREFIX).lower(): value for name, value in self.env.items()}
        settings = Settings.model_validate({"state_dir": self.state_dir, **given})
        self.context = Context(fill(settings, known.read(self.state_dir)))
        self.control = Control(settings.sockets_dir)
        self.provider = LocalProvider(self.context.settings)
        if not self.rentals.is_alive():
            self.rentals.start()

    def restart(self) -> None:
        """A later `up` on the same folder: it waits for what is left of the one before."""
        self.start()

    def end(self) -> None:
        """SIGKILL to everything: a stop in order costs 16 s, and is a scenario of its own."""
        self.rentals.over.set()
        self.kill_everything()
        services = known.read(self.state_dir)
        for part in ("master", "volume", "filer", "s3"):
            if services:
                Path(f"/tmp/seaweedfs-{part}-grpc-{services.s3_ports[f'{part}_grpc']}.sock").unlink(missing_ok=True)
        shutil.rmtree(self.base)

    def kill_everything(self) -> None:
        """As a power cut would, all at once: nobody stops anything in order."""
        if hasattr(self, "up"):
            self.up.process.kill()
            self.up.process.wait()
        while left := processes_of(self.state_dir):
            for process in left:
                end_tree(process)

    # What runs

    def pid(self, program: str) -> int:
        """The pid that supervisord knows `program` by, 0 while it does not run."""
        try:
            return next(p.pid for p in self.control.processes() if p.name == program)
        except Unreachable:
            return 0

    def tree(self, program: str) -> list[psutil.Process]:
        """The program and its children; [] while it does not run."""
        try:
            top = psutil.Process(self.pid(program))
            alive = top.pid and top.status() != psutil.STATUS_ZOMBIE
            return [top, *top.children(recursive=True)] if alive else []
        except (psutil.NoSuchProcess, ValueError):
            return []

    def wait_until_runs(self, program: str, budget_s: float = 30) -> None:
        # supervisord may not have noticed yet that the one before is dead.
        wait_for(f"{program} runs", lambda: self.tree(program), budget_s)

    def goes_on(self, seconds: float, look: Callable[[], object] = lambda: None) -> None:
        """The fault lasts that long (from now); `look` may assert what must hold meanwhile."""
        until = self.context.now_ms() + seconds * 1000

        def over() -> bool:
            look()
            return self.context.now_ms() >= until

        wait_for(f"{seconds} s are over", over, seconds + 30)

    # Faults

    def kill(self, program: str) -> int:
        """SIGKILL to all of a program; when that was done, in ms."""
        self.wait_until_runs(program)
        end_tree(psutil.Process(self.pid(program)))
        return self.context.now_ms()

    @contextmanager
    def frozen(self, program: str) -> Iterator[None]:
        """SIGSTOP: it holds every connection and answers none."""
        tree = self.tree(program)
        assert tree, program
        for process in tree:
            process.suspend()
        try:
            yield
        finally:
            for process in tree:
                process.resume()

    def supervisorctl(self, *words: str) -> str:
        """As an operator would: waits until it is done."""
        socket = f"unix://{self.context.settings.sockets_dir}/supervisor.sock"
        argv = [sys.executable, "-m", "supervisor.supervisorctl", "-s", socket, *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=90 * PATIENCE)
        return done.stdout + done.stderr

    @contextmanager
    def stopped(self, program: str) -> Iterator[None]:
        """Stopped by its supervisor, then started again. `program` may be a whole group, as `app:*`."""
        name = program if ":" in program else f"{GROUPS.get(program, 'app')}:{program}"
        said = self.supervisorctl("stop", name)
        assert "stopped" in said, said
        try:
            yield
        finally:
            said = self.supervisorctl("start", name)
            assert "started" in said, said

    def flushall(self) -> None:
        """Forget everything in Redis; a Redis that is away has nothing to forget."""
        try:
            self.context.redis.flushall()
        except RedisError:
            pass

    def stop_up(self, number: signal.Signals) -> None:
        """End `up` by a signal and wait for it."""
        self.up.process.send_signal(number)
        self.up.process.wait(timeout=45 * PATIENCE)
