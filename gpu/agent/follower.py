"""Log files that a program writes itself, read into streams while they grow."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from gpu.agent.stream import Stream

POLL_S = 0.2
READ_BYTES = 64 * 1024


@dataclass
class _Followed:
    path: Path
    stream: Stream
    inode: int = -1
    offset: int = 0


class Follower:
    """One thread that reads all followed files. A file that shrank or was replaced is read from its start."""

    def __init__(self) -> None:
        self._files: dict[Path, _Followed] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        threading.Thread(target=self._run, name="follow", daemon=True).start()

    def follow(self, path: Path, stream: Stream) -> None:
        """Read `path` into `stream` as soon as it exists; following it twice is following it once."""
        with self._lock:
            self._files.setdefault(path, _Followed(path, stream))

    def drain(self) -> None:
        """Read what is there now, up to its end."""
        with self._lock:
            for followed in self._files.values():
                _read_on(followed)

    def stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(POLL_S):
            self.drain()


def _read_on(followed: _Followed) -> None:
    try:
        file = os.open(followed.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        facts = os.fstat(file)
        if facts.st_ino != followed.inode or facts.st_size < followed.offset:
            followed.inode, followed.offset = facts.st_ino, 0
        # Up to the size seen now: a program that writes faster than we read must not hold the other files up.
        while followed.offset < facts.st_size:
            data = os.pread(file, min(READ_BYTES, facts.st_size - followed.offset), followed.offset)
            if not data:
                break
            followed.offset += len(data)
            followed.stream.feed(data)
    except OSError:
        return  # not a regular file, or its disk failed: nothing to ship
    finally:
        os.close(file)
