"""A secret of this controller: made once, kept in the state folder, readable by its owner only."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def kept_secret(state_dir: Path, name: str, make: Callable[[], str]) -> str:
    """The text of the file `name`, written with what `make` gives where it is not there yet. Raises OSError."""
    path = state_dir / name
    if not path.exists():
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        # 0600 from its first byte on, and whole before it has its name: of two processes that start together both
        # read the one that was linked first, never an empty file.
        descriptor, draft = tempfile.mkstemp(prefix=f".{name}-", dir=state_dir)
        with os.fdopen(descriptor, "w") as file:
            file.write(make())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        os.unlink(draft)
    return path.read_text().strip()
