"""Log files that programs write themselves, read into streams while they grow, whatever is done to them.

A file may come late, be truncated, renamed, deleted or replaced between two looks. What was opened stays open, so that
the rest of a file that was moved away is still read; what was copied and truncated is found again by its contents.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpu.agent.logfile import Identity, LogFile, NoLogFile, guard_of, open_regular
from gpu.agent.stream import Stream

POLL_S = 0.2
QUIET_S = 60.0  # a file that was moved away and did not grow for so long is let go
MOST_FILES = 64  # of one pattern: a program that makes a file for each proof must not use up our descriptors
MOST_REMEMBERED = 10_000
_CLOCKS_DIFFER_S = 1.0  # a file system's times may lag behind the clock
_ROTATED = re.compile(r"[._~-](?:[0-9][0-9TZ:._-]{0,40}|old|bak|prev|copy)?")


@dataclass(frozen=True)
class Clocks:
    """Seconds: `monotonic` of this process, `wall` as files are stamped."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


class Follower:
    """One thread that reads all followed files. `log` is told once of each that can't be read.

    Bytes written between our last look and a truncation are lost where no copy of them was made: nobody has them.
    """

    def __init__(self, log: Callable[[str], None], clocks: Clocks | None = None) -> None:
        self._log, self._clocks = log, clocks or Clocks()
        self._patterns: dict[str, _Pattern] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def start(self) -> None:
        """Look every 0.2 s, in a thread of its own, until stopped."""
        threading.Thread(target=self._run, name="follow", daemon=True).start()

    def follow(self, folder: Path, pattern: str, stream: Stream) -> None:
        """Read `pattern`, a path below `folder` or one with `*` or `?`, into `stream` as soon as there is something;
        following it twice is following it once."""
        with self._lock:
            if pattern not in self._patterns:
                self._patterns[pattern] = _Pattern(folder, pattern, stream, self._log, self._clocks)

    def drain(self) -> None:
        """Read what is there now, up to its end."""
        with self._lock:
            for pattern in self._patterns.values():
                pattern.look()

    def stop(self) -> None:
        """Read nothing more; unfinished lines are given out."""
        self._stopping.set()
        with self._lock:
            for pattern in self._patterns.values():
                pattern.close()
            self._patterns.clear()

    def _run(self) -> None:
        while not self._stopping.wait(POLL_S):
            self.drain()


class _Pattern:
    """The files of one path or pattern, those moved away included. Not thread-safe."""

    def __init__(self, folder: Path, pattern: str, stream: Stream, log: Callable[[str], None], clocks: Clocks):
        self._folder, self._pattern, self._stream = folder, pattern, stream
        self._log, self._clocks = log, clocks
        self._files: dict[Identity, LogFile] = {}
        self._over: dict[Identity, tuple[int, bytes]] = {}  # offset and guard of files let go, and of mere copies
        self._told: set[str] = set()
        self._looked_s = clocks.wall()

    def look(self) -> None:
        """Read what grew, let go what is over, open what is new."""
        looking_s = self._clocks.wall()
        for file in list(self._files.values()):
            self._read_on(file)
            if file.moved and self._clocks.monotonic() - file.grew_at > QUIET_S:
                self._let_go(file)
        for file in [file for file in self._files.values() if self._moved(file)]:
            self._read_on(file)
        for path in self._paths():
            self._open(path)
        for path in {file.path for file in self._files.values()}:
            self._read_missed(path)
        self._looked_s = looking_s

    def close(self) -> None:
        for file in list(self._files.values()):
            self._let_go(file)

    def _paths(self) -> list[str]:
        if not glob.has_magic(self._pattern):
            return [str(self._folder / self._pattern)]
        return [str(self._folder / path) for path in sorted(glob.glob(self._pattern, root_dir=self._folder))]

    def _open(self, path: str) -> None:
        """Follow the file at `path`, if there is one, and a new one."""
        try:
            fd = open_regular(path)
        except NoLogFile as error:
            self._tell(path, str(error))
            return
        if fd is None:
            return
        try:
            new = self._new(path, fd)
        except OSError as error:
            new = None
            self._tell(path, f"can't be read: {error.strerror or error}")
        if new is None:
            os.close(fd)
            return
        for file in list(self._files.values()):
            if file.path == path:
                self._read_on(file)  # the end of the one that was here stands before the beginning of this one
        self._files[new.identity] = new
        self._read_missed(path)  # stands before this one, too
        self._read_on(new)

    def _new(self, path: str, fd: int) -> LogFile | None:
        """None if `fd` is read already, or a copy of one that is."""
        facts = os.fstat(fd)
        identity = (facts.st_dev, facts.st_ino)
        offset, guard = self._over.get(identity, (0, b""))
        if guard and (facts.st_size < offset or guard_of(fd, offset) != guard):
            offset, guard = 0, b""  # another file, under the number of one that was deleted
        if identity in self._files or (guard and offset == facts.st_size):
            return None
        for file in self._files.values():
            if facts.st_size and _named_after(path, file.path) and file.begins_as(fd, facts.st_size):
                self._remember(identity, facts.st_size, guard_of(fd, facts.st_size))
                return None
        if not self._room(path):
            return None
        new = LogFile(path, fd, self._stream.source(), self._clocks.monotonic())
        new.skip(offset)
        return new

    def _room(self, path: str) -> bool:
        if len(self._files) < MOST_FILES:
            return True
        oldest = min(self._files.values(), key=lambda file: (not file.moved, file.grew_at))
        if oldest.moved or self._clocks.monotonic() - oldest.grew_at > QUIET_S:
            self._let_go(oldest)
            return True
        self._tell(self._pattern, f"stands for more than {MOST_FILES} files that are written; some have to wait")
        return False

    def _tell(self, path: str, what: str) -> None:
        if (line := f"stream {self._stream.name}: {path} {what}") not in self._told:
            self._told.add(line)
            self._log(line)

    def _read_on(self, file: LogFile) -> None:
        try:
            if file.was_cut():
                if not self._read_copy(file):
                    file.source.close()
                file.rewind(self._stream.source())
            file.read_on(self._clocks.monotonic())
        except OSError as error:
            self._tell(file.path, f"can't be read on: {error.strerror or error}")
            self._let_go(file)

    def _moved(self, file: LogFile) -> bool:
        """True once, when the path leads to this file no more. Such a file is read on until it is quiet: its writer may
        not know yet."""
        if file.moved:
            return False
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            facts = os.lstat(file.path)
            file.moved = (facts.st_dev, facts.st_ino) != file.identity
            return file.moved
        file.moved = True
        return True

    def _read_missed(self, path: str) -> None:
        """Files that came to `path` and were moved away or copied between two looks, as rotation by size does."""
        for beside, facts in _named_beside(path):
            if facts.st_mtime >= self._looked_s - _CLOCKS_DIFFER_S:
                self._open(beside)

    def _read_copy(self, file: LogFile) -> bool:
        """The file was cut off. What it held since our last look is in the copy, if one was made first: True then, and
        the copy goes on as the source that the file was."""
        found = False
        for path, _ in sorted(_named_beside(file.path), key=lambda beside: -beside[1].st_size):
            with contextlib.suppress(NoLogFile):
                if (fd := open_regular(path)) is None:
                    continue
                facts = os.fstat(fd)
                identity = (facts.st_dev, facts.st_ino)
                if identity in self._files or facts.st_size < file.offset or not file.was_copied_to(fd):
                    os.close(fd)
                elif found:  # a shorter copy, of an earlier time
                    self._remember(identity, facts.st_size, guard_of(fd, facts.st_size))
                    os.close(fd)
                else:
                    copy = self._files[identity] = LogFile(path, fd, file.source, self._clocks.monotonic())
                    copy.moved = found = True
                    copy.skip(file.offset)
                    copy.read_on(self._clocks.monotonic())
        return found

    def _let_go(self, file: LogFile) -> None:
        self._files.pop(file.identity, None)
        self._remember(file.identity, file.offset, file.guard)
        file.close()

    def _remember(self, identity: Identity, offset: int, guard: bytes) -> None:
        self._over[identity] = (offset, guard)
        if len(self._over) > MOST_REMEMBERED:
            del self._over[next(iter(self._over))]


def _named_after(path: str, original: str) -> bool:
    """As copies and rotated files are: the same name, with a number, a date or a word behind it."""
    return path.startswith(original) and _ROTATED.fullmatch(path, len(original)) is not None


def _named_beside(path: str) -> Iterator[tuple[str, os.stat_result]]:
    folder = os.path.dirname(path)
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(folder)):
            if _named_after(other := os.path.join(folder, name), path):
                yield other, os.lstat(other)
