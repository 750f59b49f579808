"""The tiny process between `LocalProvider.rent` and the agent.

Reads an order (JSON) on stdin, forks, and lets the child start a session of its own, write `instance.json`,
release the market's lock (inherited: so nobody can look between the fork and the file) and become the agent.
The agent is then nobody's child: neither an RQ worker, nor supervisord, nor `up` takes it along when it ends.
Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

INSTANCE_FILE = "instance.json"
LOG_FILE = "agent.log"


def write_durably(path: Path, text: str) -> None:
    """The file whole or not at all, also after a power cut."""
    temporary = path.with_suffix(".part")
    with open(temporary, "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _become_the_agent(order: dict[str, Any]) -> None:
    """Never returns but by an exception: the process is replaced. Raises OSError."""
    from jobs.market.providers.local_processes import boot_id, start_ticks

    os.setsid()
    os.umask(0o077)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    folder = Path(order["folder"])
    os.chdir(folder)
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(folder / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.sched_setaffinity(0, order["cores"])
    pid = os.getpid()
    record = {**order["record"], "pid": pid, "start_ticks": start_ticks(pid), "boot_id": boot_id()}
    write_durably(folder / INSTANCE_FILE, json.dumps(record))
    os.close(order["lock_fd"])
    try:
        os.execve(order["command"][0], order["command"], order["env"])  # noqa: S606 - no shell is the point
    except OSError:
        (folder / INSTANCE_FILE).unlink()
        raise


def main() -> int:
    """0 once the agent runs; 1 with one line on stderr when it could not be started and nothing is left."""
    order = json.load(sys.stdin)
    reader, writer = os.pipe()  # close-on-exec: its end tells that the agent runs
    if os.fork() == 0:
        os.close(reader)
        try:
            _become_the_agent(order)
        except OSError as error:
            os.write(writer, str(error).encode())
        os._exit(1)
    os.close(writer)
    os.close(order["lock_fd"])
    with os.fdopen(reader, "rb") as pipe:
        trouble = pipe.read()
    if trouble:
        sys.stderr.write(trouble.decode(errors="replace") + "\n")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
