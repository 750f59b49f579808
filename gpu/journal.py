"""The daemon's log on stderr: one line a proof, and a TIMELINE line for each step of it, for post-mortems."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
import traceback

_STARTED = time.monotonic()
_one_at_a_time = threading.Lock()


def log(line: str) -> None:
    """One line on stderr, whatever the files are called."""
    _write(" ".join(line.split()))


def log_trace() -> None:
    """The exception that is being handled, with its traceback: for faults of ours."""
    _write(traceback.format_exc())


def _write(text: str) -> None:
    # Whoever read the log may be gone; the daemon must prove and drain all the same. One write with its newline and
    # one writer at a time: `print` writes the newline by itself, and lines of two threads came out as one.
    with _one_at_a_time, contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text.rstrip("\n") + "\n")
        sys.stderr.flush()


def timeline(event: str, job: str, detail: str) -> None:
    """`TIMELINE,<ms since the start>,<event>,<job>,<detail>`, as cuzk writes it; a comma in a name becomes `_`."""
    ms = (time.monotonic() - _STARTED) * 1000
    name = re.sub(r"[,\s]", "_", job)
    log(f"TIMELINE,{ms:.0f},{event},{name},{detail}")
