"""The state folder of one control plane: private, ours alone, with room left, and used by one `up` at a time."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import shutil
import signal
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from jobs.services.errors import ServiceError, explained
from jobs.services.known import FILE

NEED_FREE_BYTES = 500 * 10**6
LOCK = "up.lock"
FOLDERS = ("log", "valkey", "weed")
# What an `up` or a demo that gave up early may leave in a folder without services.json.
MADE_FIRST = {LOCK, "run", "cache", *FOLDERS}
# In the environment of each program: the state folder that it works for.
MARK = "PROVEFLEET_PROGRAM_OF"


def owner_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def prepare(state_dir: Path) -> None:
    """Makes the folder (0700) or checks the one that is there. Raises ServiceError."""
    with explained(state_dir, "can't use the state folder"):
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = state_dir.stat()
        names = {entry.name for entry in os.scandir(state_dir)} if info.st_uid == os.geteuid() else set()
    what = f"won't use the state folder {state_dir}"
    if info.st_uid != os.geteuid():
        raise ServiceError(
            what,
            f"it belongs to {owner_name(info.st_uid)}, and this is {owner_name(os.geteuid())}",
            f"Run as {owner_name(info.st_uid)}, or set PROVEFLEET_STATE_DIR to a folder of your own",
        )
    if FILE not in names and (strange := names - MADE_FIRST):
        raise ServiceError(
            what,
            f"it holds {min(strange)!r} but no {FILE}, so it is not ours or has lost that file",
            f"Set PROVEFLEET_STATE_DIR to a new or empty folder, or restore {FILE}",
        )
    with explained(state_dir, "can't make private the state folder"):
        # Only now: a folder that is not ours must never be chmodded.
        state_dir.chmod(0o700)
        for name in FOLDERS:
            (state_dir / name).mkdir(mode=0o700, exist_ok=True)
        if not os.access(state_dir, os.W_OK | os.X_OK) or os.statvfs(state_dir).f_flag & os.ST_RDONLY:
            raise PermissionError(13, "it can't be written")


def check_space(state_dir: Path, need: int = NEED_FREE_BYTES) -> None:
    """Raises ServiceError when less than `need` bytes are free for the state folder."""
    free = shutil.disk_usage(state_dir).free
    if free < need:
        raise ServiceError(
            f"the disk of {state_dir} is full",
            f"{free / 1e6:.0f} MB are free, {need / 1e6:.0f} MB are needed for logs and the archive",
            "Free some space, or set PROVEFLEET_STATE_DIR to a folder on another disk",
        )


def private_folder(path: Path) -> None:
    """Makes `path` (0700) or checks that it is a real folder, ours and private: it may lie in /tmp,
    where anyone can be there first. Raises ServiceError."""
    with explained(path, "can't make the sockets folder"):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            pass
        info = path.lstat()
    wrong = (
        "it is a symbolic link"
        if stat.S_ISLNK(info.st_mode)
        else "it is not a folder"
        if not stat.S_ISDIR(info.st_mode)
        else f"it belongs to {owner_name(info.st_uid)}"
        if info.st_uid != os.geteuid()
        else f"others may enter it (mode {stat.S_IMODE(info.st_mode):o})"
        if info.st_mode & 0o077
        else ""
    )
    if wrong:
        raise ServiceError(
            f"won't put sockets into {path}",
            wrong,
            "Remove it, or set PROVEFLEET_STATE_DIR to a folder with a shorter path",
        )


@dataclass(frozen=True)
class Holder:
    """Who holds the state folder: the process of `up`, and where its site is."""

    pid: int
    site_url: str

    @property
    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


class Lock:
    """The right to run services on a state folder: an flock, so that it ends with its last holder.

    supervisord inherits it: when `up` is killed, it stays held until the services have stopped.
    """

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / LOCK
        with explained(self.path, "can't open"):
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def acquire(self) -> bool:
        """True when we hold it now."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def describe(self, site_url: str) -> None:
        """Writes who holds it, for `holder`."""
        text = json.dumps(asdict(Holder(os.getpid(), site_url))).encode()
        with explained(self.path, "can't write"):
            os.ftruncate(self.fd, 0)
            os.pwrite(self.fd, text, 0)

    def holder(self) -> Holder | None:
        """The one who described itself last; None when nobody did."""
        try:
            return Holder(**json.loads(os.pread(self.fd, 4096, 0)))
        except (ValueError, TypeError):
            return None

    def close(self) -> None:
        os.close(self.fd)


def running(state_dir: Path) -> Holder | None:
    """The `up` that runs on this folder now, or None."""
    if not (state_dir / LOCK).is_file():
        return None
    lock = Lock(state_dir)
    try:
        if lock.acquire():
            return None
        holder = lock.holder()
        return holder if holder and holder.alive else None
    finally:
        lock.close()


def programs_left(state_dir: Path) -> list[int]:
    """Pids of the programs of this folder and of all that they started; empty when all have ended.

    They have our mark in their environment (see child.py). Local agents have not, and may outlive us.
    """
    mark = os.fsencode(f"{MARK}={state_dir}")
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and mark in _environment(pid)]


def kill_leftovers(state_dir: Path) -> None:
    """SIGKILL to all of `programs_left`. Only for the one who holds the folder's lock."""
    for pid in programs_left(state_dir):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _environment(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        # It ended meanwhile, or is not ours.
        return set()
