"""How much memory there is to use: the machine's, or the cgroup's when that is less."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def limit_bytes() -> int:
    """Bytes that this process may use at most, by the machine's size and its cgroup's limit."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CGROUP_LIMITS:
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():  # "max" means no limit
            limit = min(limit, int(text))
    return limit


def usable_cpus() -> int:
    """CPUs that this process may run on."""
    return max(1, len(os.sched_getaffinity(0)))
