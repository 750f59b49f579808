"""Processes of local instances through /proc: who is alive, who carries a label, and how to end them all.

A process is known by boot, pid and start time together, so that a reused pid is never taken for ours.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from gpu.agent.procfs import read_text

LABEL_VARIABLE = "PROVEFLEET_LABEL"
_POLL_S = 0.05


class StillAlive(Exception):
    """Processes that did not end within the time given, SIGKILL or not (they hang in the kernel)."""


def boot_id() -> str:
    """Changes with every start of the machine."""
    return read_text("/proc/sys/kernel/random/boot_id")


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on (field 3 of proc(5)); [] when it is gone."""
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when it is gone or a zombie."""
    fields = _stat(pid)
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return int(fields[19])


def is_alive(pid: int, started_ticks: int, boot: str) -> bool:
    """True if exactly that process still runs."""
    return boot == boot_id() and start_ticks(pid) == started_ticks


def carriers(label: str, session: int | None = None) -> list[int]:
    """Every living process whose environment carries `label`, or that belongs to `session`."""
    needle = f"{LABEL_VARIABLE}={label}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        pid = int(entry)
        if start_ticks(pid) is None:
            continue
        try:
            carries = needle in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            carries = False  # another user's, or gone since
        fields = _stat(pid) if session is not None and not carries else []
        if carries or (len(fields) > 3 and int(fields[3]) == session):
            found.append(pid)
    return found


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def end_all(label: str, agent: tuple[int, int, str] | None, polite_s: float, hard_s: float) -> None:
    """SIGTERM to the agent (pid, start ticks, boot), which ends its own children; then SIGKILL to all that
    still carries the label or sits in its session, until nothing does. Raises `StillAlive`."""
    session = None
    if agent is not None and is_alive(*agent):
        session = agent[0]
        _send(agent[0], signal.SIGTERM)
        deadline = time.monotonic() + polite_s
        while is_alive(*agent) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    deadline = time.monotonic() + hard_s
    while pids := carriers(label, session):
        for pid in pids:
            _send(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise StillAlive(f"processes {pids} of {label} do not end")
        time.sleep(_POLL_S)
