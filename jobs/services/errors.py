"""The one error that an operator sees when the services can't be started, stopped or found."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class ServiceError(Exception):
    """Says in one line what went wrong, why, and what to do."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}: {why}. {fix}")
        self.what, self.why, self.fix = what, why, fix


@contextmanager
def explained(path: Path, what: str) -> Iterator[None]:
    """Turns an OSError on `path` into a ServiceError that says what to do about it."""
    try:
        yield
    except OSError as error:
        raise ServiceError(f"{what} {path}", error.strerror or str(error), _fix(error, path)) from error


def _fix(error: OSError, path: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"Free some space on the disk of {path}, or set PROVEFLEET_STATE_DIR to a folder on another disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Set PROVEFLEET_STATE_DIR to a folder that you may write"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return "A file is in the way: remove it, or set PROVEFLEET_STATE_DIR to a folder"
    return "Set PROVEFLEET_STATE_DIR to another folder"
