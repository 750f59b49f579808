"""The `kernel` stream: what the kernel logs, where a container may read it (/dev/kmsg, or the system call of dmesg)."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

from gpu.agent.stream import Source

BEFORE_S = 300.0  # what the kernel said shortly before we began may be why we fail
MOST_LINES = 500  # at one look: a kernel that floods its log must not take our time
_BUFFER_BYTES = 1 << 20
_SYSLOG_ACTION_READ_ALL = 3  # syslog(2)
_RECORD = re.compile(
    r"(\d+),(\d+),(\d+),[^;]*;(.*)"
)  # priority, sequence, microseconds; Documentation/ABI/testing/dev-kmsg
_LINE = re.compile(r"<\d+>\[ *(\d+\.\d+)\] ?(.*)")


class KernelLog:
    """Feeds `source` lines as dmesg prints them: `[ 1234.567890] NVRM: Xid ...`, seconds since the machine started."""

    def __init__(self, source: Source, kmsg: Path, monotonic: Callable[[], float], klog: Callable[[], bytes]):
        self._source, self._klog = source, klog
        self._since_s = max(0.0, monotonic() - BEFORE_S)
        self._rest = b""
        self._last = ""
        self._fd: int | None = None
        self._dmesg = False
        try:
            self._fd = os.open(kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self._try_dmesg(f"{kmsg}: {error.strerror or error}")

    def look(self) -> None:
        """What is new since the last look."""
        if self._fd is not None:
            self._from_kmsg(self._fd)
        elif self._dmesg:
            self._from_dmesg()

    def _try_dmesg(self, why: str) -> None:
        try:
            self._klog()
        except OSError as error:
            self._source.feed(
                f"kernel messages can't be read on this machine ({why}; dmesg: {error.strerror})\n".encode()
            )
        else:
            self._dmesg = True

    def _from_kmsg(self, fd: int) -> None:
        for _ in range(MOST_LINES):
            try:
                data = os.read(fd, 8192)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:
                    self._source.feed(b"(kernel messages were overwritten before they could be read)\n")
                    continue
                os.close(fd)
                self._fd = None
                return self._try_dmesg(f"reading it: {error.strerror}")
            if not data:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                if match := _RECORD.fullmatch(line.decode(errors="replace")):
                    self._give(int(match[3]) / 1e6, match[4])

    def _from_dmesg(self) -> None:
        """The whole buffer each time; new is what stands behind the line that was last then."""
        lines = self._klog().decode(errors="replace").splitlines()
        first = len(lines) - 1 - lines[::-1].index(self._last) + 1 if self._last in lines else 0
        for line in lines[first:][:MOST_LINES]:
            self._last = line
            if match := _LINE.fullmatch(line):
                self._give(float(match[1]), match[2])

    def _give(self, at_s: float, text: str) -> None:
        if at_s >= self._since_s:
            self._source.feed(f"[{at_s:12.6f}] {text}\n".encode())


def klogctl() -> bytes:
    """The kernel's log buffer, as dmesg reads it. Raises OSError where we may not."""
    buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
    size = ctypes.CDLL(None, use_errno=True).klogctl(_SYSLOG_ACTION_READ_ALL, buffer, _BUFFER_BYTES)
    if size < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return buffer.raw[:size]
