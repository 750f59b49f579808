"""Timing whole processes and calls for the benchmarks: wall seconds, and the peak of a process' resident memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[], tuple[float, int]]
"""One measured run: its seconds and its peak resident bytes (0 where a call was timed and not a process)."""


class BenchFailed(Exception):
    """A measured command failed; its last lines say why."""


@dataclass(frozen=True)
class Measured:
    """Seconds of each run, and the largest resident set in bytes."""

    seconds: list[float]
    peak_bytes: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def process(*command: object, **environment: str) -> tuple[float, int]:
    """Wall seconds and peak resident bytes of one run. BenchFailed when it does not end with 0."""
    begun = time.perf_counter()
    child = subprocess.Popen(
        [str(part) for part in command],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert child.stdout is not None
    said = child.stdout.read()
    # wait4 and not wait: it tells this child's peak, where RUSAGE_CHILDREN tells the largest of all so far.
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begun
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise BenchFailed(f"{' '.join(map(str, command))}: exit code {child.returncode}: {said[-600:].decode()}")
    return seconds, usage.ru_maxrss * 1024


def call(function: Callable[[], object]) -> tuple[float, int]:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun, 0


def side_by_side(contestants: dict[str, Run], rounds: int) -> dict[str, Measured]:
    """Runs everybody in turn, `rounds` times, so that a slow minute of the machine hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    peak = dict.fromkeys(contestants, 0)
    for _ in range(rounds):
        for name, run in contestants.items():
            took, held = run()
            seconds[name].append(took)
            peak[name] = max(peak[name], held)
    return {name: Measured(seconds[name], peak[name]) for name in contestants}


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown CPU"
