"""The daemon's log on stderr: one line a proof, and a TIMELINE line for each step of it, for post-mortems."""

from __future__ import annotations

import re
import sys
import time

_STARTED = time.monotonic()


def log(line: str) -> None:
    """One line on stderr, whatever the files are called."""
    print(" ".join(line.split()), file=sys.stderr, flush=True)  # noqa: T201 - stderr is the daemon's log stream


def timeline(event: str, job: str, detail: str) -> None:
    """`TIMELINE,<ms since the start>,<event>,<job>,<detail>`, as cuzk writes it; a comma in a name becomes `_`."""
    ms = (time.monotonic() - _STARTED) * 1000
    name = re.sub(r"[,\s]", "_", job)
    log(f"TIMELINE,{ms:.0f},{event},{name},{detail}")
