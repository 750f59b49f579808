"""How much memory there is to use: the machine's, or less where a cgroup says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")

_PROCESS = 300 << 20
_THREAD = 32 << 20
_VARIABLE, _ROW, _COEFFICIENT = 64, 288, 120


def limit_bytes() -> int:
    """Bytes that this process may use at most: the machine's size, or the least limit of its cgroup and of all
    cgroups around it (version 1, 2, or both).
    """
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _limit_files():
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdecimal():  # "max" means no limit; version 1 says it with a number beyond any machine
            limit = min(limit, int(text))
    return limit


def _limit_files() -> Iterator[Path]:
    """Where a limit may stand, from this process's cgroup up to the root.

    The root is always asked: a container that has no cgroup namespace sees its host's names for groups that
    are mounted as its root.
    """
    try:
        lines = (PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    groups = [tuple(line.split(":", 2)) for line in lines if line.count(":") >= 2]
    for _, controllers, path in [*groups, ("0", "", "/"), ("1", "memory", "/")]:
        if controllers and "memory" not in controllers.split(","):
            continue
        roots = [CGROUPS / "memory"] if controllers else [CGROUPS, CGROUPS / "unified"]
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for root in roots:
            for depth in range(len(parts), -1, -1):
                yield root.joinpath(*parts[:depth], name)


def usable_cpus() -> int:
    """CPUs that this process may run on."""
    return max(1, len(os.sched_getaffinity(0)))


def needed_for(n_vars: int, domain_size: int, n_coefficients: int, threads: int) -> int:
    """Bytes of memory that loading a key of this size and one proof with it take at most on the CPU, besides the
    pages of the key's file, which the kernel can drop and read again.

    Measured with `provefleet prove` on chains of 2^14 to 2^17 constraints, both curves (anonymous memory at its peak,
    docs/performance.md): the process, what a thread works with, the witness, values and twiddles of the domain, and
    the coefficients with the copies made while they are sorted.
    """
    return _PROCESS + _THREAD * threads + _VARIABLE * n_vars + _ROW * domain_size + _COEFFICIENT * n_coefficients
