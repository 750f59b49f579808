"""Files from the object store by presigned URL: streamed to disk, resumed, checked by sha256, cached by content."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpu.agent.client import delays
from gpu.protocol import Fetch

TIMEOUT_S = 30.0
READ_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")

At = Callable[[int], None]
StopReason = Callable[[], str]


class FetchFailed(Exception):
    """The file can't be had: which, why, and what to do. Trying again with the same URL won't help."""


class FetchStopped(Exception):
    """Somebody wants the agent to stop; the text says why."""


class _Again(Exception):
    """Broke off; go on from where it broke."""


def fetch(what: Fetch, target: Path, deadline: float, stop: StopReason, at: At) -> None:
    """Bring `what` to `target`, whole and checked, or not at all.

    `deadline` is monotonic; `at` is told how many bytes are there. Raises `FetchFailed`, `FetchStopped`.
    """
    _check(what)
    part = target.with_name(target.name + ".part")
    waits, mismatches, trouble = delays(), 0, "the time was over before it began"
    while True:
        if reason := stop():
            raise FetchStopped(reason)
        try:
            with _disk_errors(what):
                have = part.stat().st_size if part.exists() else 0
                if have < what.size_bytes:
                    _download(what, part, have, stop, at)
                if _digest(part) == what.sha256:
                    os.replace(part, target)
                    return
                part.unlink()
            mismatches += 1
            trouble = f"its {what.size_bytes} bytes do not have the sha256 that was announced"
            if mismatches == 2:
                raise FetchFailed(f"{what.name}: {trouble}, twice; upload it again")
        except _Again as error:
            trouble = str(error)
        wait = next(waits)
        if time.monotonic() + wait > deadline:
            raise FetchFailed(f"{what.name}: not there within the stage's time; the last trouble was: {trouble}")
        time.sleep(wait)


def fetch_cached(what: Fetch, cache: Path, deadline: float, stop: StopReason, at: At) -> tuple[Path, bool]:
    """The file in `cache` under its sha256, and whether it was there already. A cached file is checked again; of
    several agents on one cache, one fetches and the others wait. Raises as `fetch` does."""
    _check(what)
    target = cache / what.sha256
    with _locked(cache / f"{what.sha256}.lock", deadline, stop, what):
        with _disk_errors(what):
            if target.exists() and target.stat().st_size == what.size_bytes and _digest(target) == what.sha256:
                at(what.size_bytes)
                return target, True
        fetch(what, target, deadline, stop, at)
        target.chmod(0o400)
    return target, False


def _check(what: Fetch) -> None:
    if not _SHA256.fullmatch(what.sha256) or not _NAME.fullmatch(what.name) or what.size_bytes < 1:
        raise FetchFailed(f"the spec names a file that can't be: {what.name[:100]!r}, {what.size_bytes} bytes")
    if urlsplit(what.url).scheme not in ("http", "https"):
        raise FetchFailed(f"{what.name}: its URL is not http(s)")


def _download(what: Fetch, part: Path, have: int, stop: StopReason, at: At) -> None:
    free = os.statvfs(part.parent)
    if free.f_bavail * free.f_frsize < what.size_bytes - have:
        raise OSError(errno.ENOSPC, f"{what.size_bytes - have} more bytes are needed")
    headers = {"Range": f"bytes={have}-"} if have else {}
    request = urllib.request.Request(what.url, headers=headers)  # noqa: S310 - the scheme was checked
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:  # noqa: S310
            if have and reply.status != 206:
                have = 0  # the server knows no ranges: from the start
            _check_length(what, have, reply)
            with part.open("ab" if have else "wb") as file:
                _copy(what, file, have, reply, stop, at)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (408, 429) or error.code >= 500:
            raise _Again(f"the object store answers {error.code}") from error
        raise FetchFailed(
            f"{what.name}: the object store answers {error.code}"
            + ("; the URL has expired, or it was never allowed" if error.code == 403 else "")
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise _Again(f"{type(error).__name__}: {error}") from error


def _check_length(what: Fetch, have: int, reply: Any) -> None:
    length = reply.headers.get("Content-Length")
    if length is not None and have + int(length) != what.size_bytes:
        raise FetchFailed(
            f"{what.name}: the object has {have + int(length)} bytes, {what.size_bytes} were announced; upload it again"
        )


def _copy(what: Fetch, file: Any, have: int, reply: Any, stop: StopReason, at: At) -> None:
    while True:
        if reason := stop():
            raise FetchStopped(reason)
        data = reply.read(min(READ_BYTES, what.size_bytes - have + 1))
        if not data:
            break
        have += len(data)
        if have > what.size_bytes:
            raise FetchFailed(f"{what.name}: more than the announced {what.size_bytes} bytes came")
        file.write(data)
        at(have)
    if have < what.size_bytes:
        raise _Again(f"it broke off after {have} of {what.size_bytes} bytes")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _disk_errors(what: Fetch) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = "; rent a machine with more disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise FetchFailed(f"{what.name}: {error.strerror or error}{advice}") from error


@contextmanager
def _locked(path: Path, deadline: float, stop: StopReason, what: Fetch) -> Iterator[None]:
    with path.open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if reason := stop():
                    raise FetchStopped(reason) from error
                if time.monotonic() > deadline:
                    raise FetchFailed(f"{what.name}: another agent was still fetching it") from error
                time.sleep(0.2)
        yield
