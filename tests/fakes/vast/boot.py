"""Real agents for rented instances: a container's process, its environment and its output, without the container.

Each instance that starts gets `python -m gpu.agent`, as the payload image's ENTRYPOINT does, with exactly the variables
that Vast gives to a container and those of the image. It runs on this host, in a session and a folder of its own, and
sees the GPUs that its row promises through a stand-in for nvidia-smi. Clock at 1x: what runs here is real.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from gpu.agent import facts
from tests.fakes.vast import offers
from tests.fakes.vast.instances import Instance
from tests.fakes.vast.market import Market

POLL_S = 0.2
STOP_GRACE_S = 10.0  # docker stop


class Boots:
    """Starts and ends the agents of all instances of `market`; `close` ends them all.

    `folder` holds a folder for each instance; `kernels` is a folder of compiled CPU kernels, since compiling them
    takes longer than a benchmark. Whoever kills this process kills no agent: they end themselves, as on Vast.
    """

    def __init__(self, market: Market, folder: Path, kernels: Path):
        self._market, self._folder, self._kernels = market, folder, kernels
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._stop_at: dict[int, float] = {}
        self._closing = threading.Event()
        market.on_rent, market.on_destroy = self._start, self._destroyed
        self._watcher = threading.Thread(target=self._watch, name="boots", daemon=True)
        self._watcher.start()

    def process_of(self, i: Instance) -> psutil.Process | None:
        """The first process of the instance's container, None where none runs."""
        running = self._running.get(i.id)
        return psutil.Process(running.pid) if running is not None and running.poll() is None else None

    def log_path(self, i: Instance) -> Path:
        """The container's output."""
        return self._folder / str(i.id) / "container.log"

    def close(self) -> None:
        self._closing.set()
        self._watcher.join()
        with self._market.lock:
            self._market.on_rent = self._market.on_destroy = None
            for number in list(self._running):
                self._kill(number)

    # Called by the market, which holds its lock.

    def _start(self, i: Instance) -> None:
        """A container starts, for the first time or again: its disk is kept."""
        self._kill(i.id)
        home = self._folder / str(i.id)
        tools = home / "bin"
        tools.mkdir(mode=0o700, parents=True, exist_ok=True)
        _install_nvidia_smi(tools, i)
        image = {
            "PATH": f"{tools}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "NUMBA_CACHE_DIR": str(self._kernels),
            "PROVEFLEET_WORK_DIR": str(home / "work"),
            "PROVEFLEET_CACHE_DIR": str(home / "params"),
        }
        with self.log_path(i).open("ab") as log:
            self._running[i.id] = subprocess.Popen(
                [sys.executable, "-P", "-m", "gpu.agent"], env=image | i.env, cwd=home,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        i.log_source = self.log_path(i).read_bytes

    def _destroyed(self, i: Instance) -> None:
        self._kill(i.id)
        i.log_source = None
        shutil.rmtree(self._folder / str(i.id), ignore_errors=True)

    # Of its own.

    def _watch(self) -> None:
        """A container's end is seen, and one whose instance was stopped is ended."""
        while not self._closing.wait(POLL_S):
            with self._market.lock:
                for number, process in list(self._running.items()):
                    i = self._market.instances[number]
                    if (code := process.poll()) is not None:
                        self._kill(number)
                        if i.live and i.actual == "running":
                            self._market.life.exit(i, code if code >= 0 else 128 - code)
                    elif i.cur == "stopped":
                        self._stop(number, process)

    def _stop(self, number: int, process: subprocess.Popen[bytes]) -> None:
        if number not in self._stop_at:
            process.send_signal(signal.SIGTERM)
            self._stop_at[number] = time.monotonic() + STOP_GRACE_S
        elif time.monotonic() > self._stop_at[number]:
            self._kill(number)

    def _kill(self, number: int) -> None:
        """All processes of a container, as the end of its first one ends them all."""
        process = self._running.pop(number, None)
        self._stop_at.pop(number, None)
        if process is None:
            return
        try:
            family = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            family = []
        for member in family:
            try:
                member.kill()
            except psutil.NoSuchProcess:
                continue
        process.kill()
        process.wait()


def as_this_host(market: Market) -> None:
    """Make every machine advertise this host's CPU and memory, which is what its agent will find."""
    for machine in market.machines.values():
        machine.cpu_name = facts.cpu_model()
        machine.cpu_cores = len(facts.allowed_cores())
        machine.cpu_ram_mb = facts.ram_bytes() // 1_000_000


def _install_nvidia_smi(folder: Path, i: Instance) -> None:
    """A program that shows the instance's GPUs as they are: `truth` where the row lies, or a driver that fails."""
    told = offers.row(i.offer) | i.truth
    cards = [
        f"{n}, {told['gpu_name']}, GPU-{i.id:08x}-{n}, {told['gpu_ram']}, {told['driver_version']}, 300.00"
        for n in range(int(told["num_gpus"]))
    ]
    loads = ["0, 1, 41, 30.00"] * len(cards)
    if "nvidia_smi" in told:
        script = f"printf '%s\\n' {shlex.quote(told['nvidia_smi'])}\nexit 9\n"
    else:
        shown = [f"printf '%s\\n' {' '.join(map(shlex.quote, lines))}" for lines in (cards, loads)]
        script = f'case "$1" in\n*=index*) {shown[0]} ;;\n*) {shown[1]} ;;\nesac\n'
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o700)
