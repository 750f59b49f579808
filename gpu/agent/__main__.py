"""`python -m gpu.agent`: settings from the environment, then `core.Agent`; under a warden where there is an instance
of a marketplace to be ended."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from typing import NoReturn

from gpu.agent import child, warden
from gpu.agent.environment import WARDEN_FD, BadEnvironment, OwnInstance, take_environment, take_own_instance


def main() -> int:
    """The exit code: see `core.Agent.run`; 2 for a bad environment."""
    os.umask(0o077)
    try:
        if own := take_own_instance(os.environ):
            _become_warden(own)
        environment = take_environment(os.environ)
    except BadEnvironment as error:
        sys.stderr.write(f"provefleet agent: {error}\n")
        return 2
    # Not before: what becomes a warden needs none of it.
    from gpu.agent.core import Agent
    from gpu.agent.last_will import Warden
    from gpu.agent.shipper import Shipper

    guard = Warden(environment.warden_fd)
    shipper = Shipper(environment.work, [environment.bootstrap_token, *guard.secrets])
    try:
        return Agent(environment, shipper, guard).run()
    finally:
        # Witnesses are the customer's secret: whatever happened, they don't stay.
        shutil.rmtree(environment.work / "witnesses", ignore_errors=True)


def _become_warden(own: OwnInstance) -> NoReturn:
    """This process, the first one of its container, goes on as the warden; the agent is started anew below it. By exec,
    so that the key is not even in what /proc shows as the environment of either. Raises `BadEnvironment`."""
    channel, agents = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shim = [sys.executable, "-I", "-S", child.__file__, str(os.getpid())]
    order = {
        "url": own.url,
        "key": own.key,
        "hard_deadline_s": own.hard_deadline_s,
        "evidence_deadline_s": own.evidence_deadline_s,
        "agent": [*shim, sys.executable, "-P", "-m", "gpu.agent"],
        "pack": [sys.executable, "-P", "-m", "gpu.agent.last_will"],
        "env": {**os.environ, WARDEN_FD: str(agents.fileno())},
    }
    written = os.memfd_create("order")
    os.write(written, json.dumps(order).encode())
    os.lseek(written, 0, os.SEEK_SET)
    fds = (written, channel.fileno(), agents.fileno())
    for fd in fds:
        os.set_inheritable(fd, True)
    arguments = [sys.executable, "-I", "-S", warden.__file__, *map(str, fds)]
    try:
        os.execve(sys.executable, arguments, {"PATH": os.defpath})  # noqa: S606 - no shell is the point
    except OSError as error:
        raise BadEnvironment(f"{sys.executable} can't be run: {error.strerror}") from error


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that wait for a controller that is away must not hold the process
