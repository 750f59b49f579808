"""Where test servers keep their files: in memory where there is room, since their fsyncs are half of a test's time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

SHM = Path("/dev/shm")
ROOM_BYTES = 1 << 30


def fast_parent() -> str | None:
    """For the `dir` argument of `tempfile`; None means its default."""
    roomy = SHM.is_dir() and os.access(SHM, os.W_OK) and shutil.disk_usage(SHM).free > ROOM_BYTES
    return str(SHM) if roomy else None
