"""The `host` stream: what the machine has left and what befalls it. JSON, a line each 10 s and at every event."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu.agent.cgroup import Cgroup
from gpu.agent.procfs import Roots, read_numbers, read_text
from gpu.agent.stream import Source

LOOK_S = 1.0
LOOKS_A_LINE = 10
LOW_DISK_BYTES = 1 << 30
CLOCK_SET_MS = 2000
TUNNEL_TIMEOUT_S = 1.0
_WHOLE_DISK = re.compile(r"sd[a-z]+|vd[a-z]+|xvd[a-z]+|nvme\d+n\d+|mmcblk\d+")
_SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk has


@dataclass(frozen=True)
class Surroundings:
    """What `HostWatch` looks at. `tunnels`: ports on loopback that stages depend on, by name."""

    work: Path
    roots: Roots = field(default_factory=Roots)
    tunnels: Mapping[str, int] = field(default_factory=dict)
    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    monotonic: Callable[[], float] = time.monotonic
    clock_offset_ms: Callable[[], float | None] = lambda: None


class HostWatch:
    """One thread. `also` are further looks of the same rhythm. Thread-safe where it says so."""

    def __init__(self, source: Source, around: Surroundings, also: Sequence[Callable[[], None]] = ()):
        self._source, self._around, self._also = source, around, also
        self._cgroup = Cgroup(around.roots)
        self._events = self._counted = self._cgroup.events()
        self._counters = self._read_counters()
        self._looks = 0
        self._low_disk = False
        self._tunnels: dict[str, bool] = {}
        self._drift_ms = self._drift()
        self._latest: dict[str, float] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def start(self) -> None:
        """Look once a second until stopped."""
        threading.Thread(target=self._run, name="host", daemon=True).start()

    def stop(self) -> None:
        """One last line: the last seconds before the end are those that count."""
        with self._lock:
            if not self._stopping.is_set():
                self._stopping.set()
                self._look(last=True)

    def event(self, name: str, **values: Any) -> None:
        """A line at once. Thread-safe."""
        line = {"time_ms": self._around.clock_ms(), "event": name, **values}
        self._source.feed(json.dumps(line).encode() + b"\n")

    def latest(self) -> dict[str, float]:
        """What a lease carries. Thread-safe."""
        return self._latest

    def look(self) -> None:
        """Events now, and each tenth time a line."""
        with self._lock:
            if not self._stopping.is_set():
                self._look(last=False)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.look()
            self._stopping.wait(LOOK_S)

    def _look(self, last: bool) -> None:
        for other in self._also:
            other()
        new = self._cgroup.events()
        for name in ("oom", "oom_kill", "oom_group_kill"):
            if (count := new.get(name, 0) - self._events.get(name, 0)) > 0:
                used, limit = self._cgroup.memory()
                self.event(name, **{name: count}, cgroup_memory_bytes=used, cgroup_memory_limit_bytes=limit)
        self._check_clock()
        free = self._check_disk()
        if last or self._looks % LOOKS_A_LINE == 0:
            self._check_tunnels()
            self._line(free, {name: new[name] - self._counted.get(name, new[name]) for name in new})
            self._counted = new
        self._events = new
        self._looks += 1

    def _line(self, free: int | None, events: dict[str, int]) -> None:
        memory = read_numbers(self._around.roots.proc / "meminfo")
        used, limit = self._cgroup.memory()
        counters = self._read_counters()
        spent = {name: max(0, counters[name] - self._counters.get(name, counters[name])) for name in counters}
        self._counters = counters
        swap = memory.get("SwapTotal", 0) - memory.get("SwapFree", 0)
        offset = self._around.clock_offset_ms()
        values: dict[str, Any] = {
            "load_1m": float((read_text(self._around.roots.proc / "loadavg").split() or ["0"])[0]),
            "ram_available_bytes": memory.get("MemAvailable"),
            "swap_used_bytes": swap or None,
            "cgroup_memory_bytes": used,
            "cgroup_memory_limit_bytes": limit,
            "disk_free_bytes": free,
            "clock_offset_ms": None if offset is None else round(offset),
        }
        self._latest = {name: float(value) for name, value in values.items() if value is not None}
        line: dict[str, Any] = {"time_ms": self._around.clock_ms(), **values, **spent}
        # Only what happened: a word such as oom_kill in every line would find itself in every search.
        line["cgroup_events"] = {name: count for name, count in events.items() if count > 0} or None
        line["tunnels"] = {name: "up" if up else "down" for name, up in self._tunnels.items()} or None
        self._source.feed(json.dumps({k: v for k, v in line.items() if v is not None}).encode() + b"\n")

    def _read_counters(self) -> dict[str, int]:
        """Bytes since the machine started."""
        read = written = received = sent = 0
        for line in read_text(self._around.roots.proc / "diskstats").splitlines():
            cells = line.split()
            if len(cells) > 9 and _WHOLE_DISK.fullmatch(cells[2]):
                read, written = read + int(cells[5]) * _SECTOR_BYTES, written + int(cells[9]) * _SECTOR_BYTES
        for line in read_text(self._around.roots.proc / "net/dev").splitlines():
            name, _, rest = line.partition(":")
            cells = rest.split()
            if len(cells) > 8 and name.strip() != "lo":
                received, sent = received + int(cells[0]), sent + int(cells[8])
        names = ("disk_read_bytes", "disk_written_bytes", "net_received_bytes", "net_sent_bytes")
        return dict(zip(names, (read, written, received, sent), strict=True))

    def _check_disk(self) -> int | None:
        try:
            free = shutil.disk_usage(self._around.work).free
        except OSError:
            return None
        if (free < LOW_DISK_BYTES) != self._low_disk:
            self._low_disk = not self._low_disk
            self.event("disk_low" if self._low_disk else "disk_free_again", disk_free_bytes=free)
        return free

    def _drift(self) -> float:
        return self._around.clock_ms() - self._around.monotonic() * 1000

    def _check_clock(self) -> None:
        """Whether somebody set the clock: signed URLs and certificates go by it."""
        drift = self._drift()
        if abs(drift - self._drift_ms) > CLOCK_SET_MS:
            self.event("clock_set", by_ms=round(drift - self._drift_ms))
        self._drift_ms = drift

    def _check_tunnels(self) -> None:
        for name, port in self._around.tunnels.items():
            up = _accepts(port)
            if up != self._tunnels.get(name):
                self._tunnels[name] = up
                self.event("tunnel_up" if up else "tunnel_down", tunnel=name, port=port)


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TUNNEL_TIMEOUT_S):
            return True
    except OSError:
        return False
