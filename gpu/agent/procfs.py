"""What the kernel shows in files: read without ever failing, since kernels and containers differ in what they show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Roots:
    """Where the kernel shows itself; a folder of a test's own in tests."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    kmsg: Path = Path("/dev/kmsg")


def read_text(path: str | Path) -> str:
    """A small file, stripped; "" where it can't be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def read_numbers(path: Path) -> dict[str, int]:
    """Lines of `name number`, or `name: number kB` in bytes; others are passed over."""
    numbers = {}
    for line in read_text(path).splitlines():
        name, *rest = line.split()
        if rest and rest[0].isdigit():
            numbers[name.rstrip(":")] = int(rest[0]) * (1024 if rest[1:] == ["kB"] else 1)
    return numbers
