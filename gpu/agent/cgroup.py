"""The memory cgroup that this process is in: its limit, and what the kernel did because of it (cgroups v1 and v2)."""

from __future__ import annotations

from pathlib import Path

from gpu.agent.procfs import Roots, read_numbers, read_text

_V1_MEMORY = ("memory.usage_in_bytes", "memory.limit_in_bytes")


class Cgroup:
    """Our own memory cgroup; of a container with a namespace of its own, the root that it sees."""

    def __init__(self, roots: Roots):
        base = roots.sys / "fs/cgroup"
        self._folder: Path | None = None
        self._version = 0
        for line in read_text(roots.proc / "self/cgroup").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if "memory" in controllers.split(","):
                self._use(1, base / "memory", path, "memory.oom_control")
            elif number == "0":
                self._use(2, base, path, "memory.events")

    def _use(self, version: int, base: Path, path: str, wanted: str) -> None:
        for folder in (base / path.lstrip("/"), base):
            if not self._version and (folder / wanted).is_file():
                self._folder = folder
                self._version = version

    def events(self) -> dict[str, int]:
        """Counts since the cgroup was made: `max` (how often the limit was hit), `oom`, `oom_kill` and others."""
        if self._folder is None:
            return {}
        if self._version == 2:
            return read_numbers(self._folder / "memory.events")
        kills = read_numbers(self._folder / "memory.oom_control").get("oom_kill")
        hits = read_text(self._folder / "memory.failcnt")
        return {**({} if kills is None else {"oom_kill": kills}), **({"max": int(hits)} if hits.isdigit() else {})}

    def memory(self) -> tuple[int | None, int | None]:
        """(used, limit) in bytes; None for what is not known, or has no limit."""
        if self._folder is None:
            return None, None
        names = ("memory.current", "memory.max") if self._version == 2 else _V1_MEMORY
        used, limit = (read_text(self._folder / name) for name in names)
        bounded = limit.isdigit() and int(limit) < 1 << 60  # v1 has a huge number for no limit
        return int(used) if used.isdigit() else None, int(limit) if bounded else None
