"""Becomes a program that dies with the agent: `python -I -S child.py <agent's pid> PROGRAM ARGUMENTS...`.

Run by path, in a fresh interpreter: the agent has threads, and code between fork and exec is not safe with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns. Exit code 127 when the program can't be run, as a shell has it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        os._exit(1)  # the agent died before we asked to be told
    try:
        os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.stderr.write(f"{sys.argv[2]}: can't be run: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127)


if __name__ == "__main__":
    main()
