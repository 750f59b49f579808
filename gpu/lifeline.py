"""Ties a child process to its parent's life, so that a killed bench never leaves a daemon behind."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent(parent_pid: int) -> None:
    """Has the kernel kill this process when its parent ends; exits at once when that has already happened."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit("the process that started this daemon is gone")
