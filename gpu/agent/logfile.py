"""One open log file: reading on where one was, and telling one that grew from one that was cut off and written anew."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat

from gpu.agent.stream import Source

READ_BYTES = 64 * 1024
GUARD_BYTES = 128
_KINDS = {
    stat.S_IFLNK: "a symbolic link, which is not followed",
    stat.S_IFIFO: "a FIFO, no file",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

Identity = tuple[int, int]


class NoLogFile(Exception):
    """What lies at a path is no file to be read; the text says what it is."""


def open_regular(path: str) -> int | None:
    """A descriptor of the regular file at `path`; None where there is none. Raises `NoLogFile`.

    No link is followed: it could lead to a witness. Nothing but a file is opened: a FIFO would wait for us.
    """
    try:
        kind = os.lstat(path).st_mode
        if not stat.S_ISREG(kind):
            raise NoLogFile(f"is {_KINDS.get(stat.S_IFMT(kind), 'no regular file')}")
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoLogFile(f"can't be read: {error.strerror or error}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):  # it was replaced in this moment
        os.close(fd)
        return None
    return fd


class LogFile:
    """`guard` is what stands at the start and before `offset`, the digest is of all before it. `moved`: its path leads
    to it no more. `grew_at`: when it last did, monotonic seconds. Methods raise OSError when its disk fails."""

    def __init__(self, path: str, fd: int, source: Source, now_s: float):
        self.path, self.fd, self.source, self.grew_at = path, fd, source, now_s
        facts = os.fstat(fd)
        self.identity: Identity = (facts.st_dev, facts.st_ino)
        self.offset, self.moved = 0, False
        self._head, self._tail, self._digest = b"", b"", hashlib.sha256()

    @property
    def guard(self) -> bytes:
        return self._head + self._tail

    def was_cut(self) -> bool:
        """True if what was read is not there any more."""
        return os.fstat(self.fd).st_size < self.offset or guard_of(self.fd, self.offset) != self.guard

    def read_on(self, now_s: float) -> None:
        """Feed what is there, up to the size seen now: a program that writes faster than we read must not hold the
        other files up."""
        size = os.fstat(self.fd).st_size
        while self.offset < size and (data := self._next(size)):
            self.grew_at = now_s
            self.source.feed(data)

    def skip(self, size: int) -> None:
        """Take the bytes before `size` as read."""
        while self.offset < size and self._next(size):
            pass

    def rewind(self, source: Source) -> None:
        """Begin anew, as another source; with a writer that does not append, behind the hole that its old position
        left."""
        self.source = source
        self.offset, self._head, self._tail, self._digest = 0, b"", b"", hashlib.sha256()
        with contextlib.suppress(OSError):  # all of it is a hole
            first = os.lseek(self.fd, 0, os.SEEK_DATA)
            while data := os.pread(self.fd, READ_BYTES, first):
                text = data.lstrip(b"\0")
                first += len(data) - len(text)
                if text:
                    break
            self.skip(first)

    def begins_as(self, fd: int, size: int) -> bool:
        """True if this file's first `size` bytes are those of the file `fd`: that one is a copy, whole or not."""
        return os.fstat(self.fd).st_size >= size and _digest_of(self.fd, size) == _digest_of(fd, size)

    def was_copied_to(self, fd: int) -> bool:
        """True if the file `fd` begins with all that was read of this one, which may be gone here."""
        return _digest_of(fd, self.offset) == self._digest.digest()

    def close(self) -> None:
        self.source.close()
        os.close(self.fd)

    def _next(self, size: int) -> bytes:
        data = os.pread(self.fd, min(READ_BYTES, size - self.offset), self.offset)
        self.offset += len(data)
        if len(self._head) < GUARD_BYTES:
            self._head = (self._head + data)[:GUARD_BYTES]
        self._tail = (self._tail + data)[-GUARD_BYTES:]
        self._digest.update(data)
        return data


def guard_of(fd: int, offset: int) -> bytes:
    """What stands at the start and before `offset`, where so much was read."""
    size = min(offset, GUARD_BYTES)
    return os.pread(fd, size, 0) + os.pread(fd, size, offset - size) if size else b""


def _digest_of(fd: int, size: int) -> bytes:
    digest, at = hashlib.sha256(), 0
    while at < size and (data := os.pread(fd, min(READ_BYTES, size - at), at)):
        digest.update(data)
        at += len(data)
    return digest.digest()
