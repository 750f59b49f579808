"""Becomes one of the programs: `python -m jobs.services.child NAME`.

Between supervisord and each program, so that (1) the program gets SIGTERM when its parent dies, however it dies,
(2) it and its children can be found again (`state.programs_left`), (3) no path has to survive the quoting rules of
supervisord's file.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

from jobs.services.state import MARK

CONFIG = "supervisord.conf"
SPECS = "programs.json"
SUPERVISORD = "supervisord"
PARENT = "PROVEFLEET_PARENT_PID"
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """SIGTERM when the parent (pid `parent`) ends; at once when it has ended already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def become(name: str, state_dir: Path) -> None:
    """Replaces this process by the program `name` of the table that `up` wrote."""
    die_with_parent(int(os.environ[PARENT]))
    spec = json.loads((state_dir / SPECS).read_text())[name]
    if name != SUPERVISORD:
        os.environ[MARK] = str(state_dir)
    # Children of supervisord have it as their parent: our pid stays the same over the exec.
    os.environ[PARENT] = str(os.getpid())
    os.environ.update(spec["env"])
    os.chdir(spec["cwd"])
    os.execv(spec["argv"][0], spec["argv"])  # noqa: S606 - the table is ours, in a 0700 folder


if __name__ == "__main__":
    become(sys.argv[1], Path(os.environ["PROVEFLEET_STATE_DIR"]))
