"""Secrets of the controller: one, whoever asks first, and for its owner only."""

from __future__ import annotations

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from jobs.kept_secret import kept_secret


def test_all_who_ask_at_once_get_the_same_whole_secret(tmp_path: Path) -> None:
    folder, serial, together = tmp_path / "state", count(), threading.Barrier(8)

    def make() -> str:
        together.wait(10)  # nobody has written yet: each has seen that there is none
        return f"secret {next(serial)}\n"

    with ThreadPoolExecutor(8) as pool:
        told = set(pool.map(lambda _: kept_secret(folder, "key", make), range(8)))
    assert len(told) == 1
    assert [path.name for path in folder.iterdir()] == ["key"]
    assert stat.S_IMODE((folder / "key").stat().st_mode) == 0o600
    assert kept_secret(folder, "key", lambda: "another") == told.pop().strip()
