"""The warden: a small parent of the agent that ends the rented instance, whatever becomes of the agent.

`python -I -S warden.py ORDER_FD CHANNEL_FD AGENT_FD`, become of `python -m gpu.agent` by exec where a marketplace gave
the instance a key of its own (`gpu.agent.environment.OwnInstance`). The order (JSON) holds that key, which is in no
environment and no argument list from here on. It starts the agent, hears its last will at each renewal of the lease,
and when the agent has ended, for whatever reason, packs what lies on the disk if the agent could not, and DELETEs the
instance. Run by path in a bare interpreter, with as little of the standard library as will do: it needs 4 MB.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from typing import Any

POLL_S = 1.0
MESSAGE_BYTES = 64 * 1024
UNREGISTERED_S = 960.0  # the agent itself gives up after 900
STUCK_S = 15.0
GRACE_S = 10.0
PACK_AT_LEAST_S = 10.0
FAILED = 255
# Sealed, never registered, packed by itself: nothing is left to be packed.
SETTLED = (0, 1, 3)


class Warden:
    """One agent and its instance; `run` is called once."""

    def __init__(self, order: dict[str, Any], channel: int, agent_fd: int):
        self._order, self._channel, self._agent_fd = order, channel, agent_fd
        self._evidence_s = float(order["evidence_deadline_s"])
        self._hard = time.monotonic() + float(order["hard_deadline_s"])
        self._ends = time.monotonic() + UNREGISTERED_S
        self._will = b""
        self._packs = False
        self._agent = 0

    def run(self) -> int:
        """The agent's exit code (128 + N for signal N), once the marketplace knows this instance no more."""
        code = FAILED
        try:
            code = self._guard()
        except Exception as error:  # noqa: BLE001 - a bug of ours must not keep the instance, and its bill, alive
            self._log(f"failed itself: {type(error).__name__}: {error}")
            self._tell_agent(signal.SIGKILL)
        self._end()
        return code

    def _guard(self) -> int:
        os.write(self._channel, json.dumps({"secrets": [self._order["key"]]}).encode())
        self._agent = self._start(self._order["agent"], self._order["env"], self._agent_fd)
        os.close(self._agent_fd)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._tell_agent(signal.SIGTERM))
        code = self._watch()
        how = f"was killed by signal {code - 128}" if code > 128 else f"ended with exit code {code}"
        self._log(f"the agent {how}")
        if code not in SETTLED and self._will:
            self._pack(how)
        return code

    def _watch(self) -> int:
        kill_at = 0.0
        while True:
            self._hear()
            if (code := self._reaped(self._agent)) is not None:
                self._agent = 0  # its number may soon be somebody else's
                return code
            now = time.monotonic()
            if kill_at and now > kill_at:
                self._tell_agent(signal.SIGKILL)
            elif not kill_at and (why := self._overdue(now)):
                self._log(f"ends the agent: {why}")
                self._tell_agent(signal.SIGTERM)
                kill_at = now + GRACE_S

    def _overdue(self, now: float) -> str:
        if now > self._hard:
            return "the hard deadline of this instance has passed"
        if now > self._ends + (self._evidence_s if self._packs else min(STUCK_S, self._evidence_s)):
            return "the lease is over and it does not end by itself"
        return ""

    def _hear(self) -> None:
        """The newest last will, for at most a second; the end of the channel is the end of the agent."""
        if not select.select([self._channel], [], [], POLL_S)[0]:
            return
        try:
            message = os.read(self._channel, MESSAGE_BYTES)
        except ConnectionResetError:
            message = b""  # it ended before it read what was told to it
        if not message:
            time.sleep(0.05)  # it is dying: not yet to be reaped
            return
        told = json.loads(message)
        self._will, self._ends, self._packs = message, float(told["ends"]), bool(told["packs"])

    def _reaped(self, pid: int) -> int | None:
        """The exit code of `pid` if it has ended. As process 1 of a container, the warden also buries its orphans."""
        while True:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return FAILED
            if ended == 0:
                return None
            if ended == pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code

    def _pack(self, how: str) -> None:
        """By a process of its own and for a limited time: nothing that goes wrong there may keep us from the end."""
        now = time.monotonic()
        seconds = max(PACK_AT_LEAST_S, min(self._evidence_s, self._ends + self._evidence_s - now))
        will = os.memfd_create("will")
        os.write(will, self._will)
        os.lseek(will, 0, os.SEEK_SET)
        arguments = [*self._order["pack"], f"{seconds:.0f}", f"the agent {how}"]
        pid = self._start(arguments, self._order["env"], will, stdin=True)
        os.close(will)
        while self._reaped(pid) is None:
            if time.monotonic() > now + seconds + GRACE_S:
                self._log("packing the evidence takes too long, it is given up")
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    def _end(self) -> None:
        # http and ssl cost 8 MB: only now, when the prover's memory is free again.
        sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
        from gpu.agent.self_destroy import end_instance

        end_instance(self._order["url"], self._order["key"], self._log)

    def _start(self, arguments: list[str], env: dict[str, str], fd: int, stdin: bool = False) -> int:
        """Fork and exec, with `fd` handed on (as standard input, if asked)."""
        pid = os.fork()
        if pid:
            return pid
        try:
            os.set_inheritable(fd, True)
            if stdin:
                os.dup2(fd, 0)
            os.execve(arguments[0], arguments, env)  # noqa: S606 - no shell is the point
        except OSError as error:
            self._log(f"{arguments[0]}: can't be run: {error.strerror}")
        finally:
            os._exit(127)

    def _tell_agent(self, number: int) -> None:
        if not self._agent:
            return
        try:
            os.kill(self._agent, number)
        except ProcessLookupError:
            pass  # it has ended

    def _log(self, line: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        sys.stderr.write(f"{stamp} warden: {line.replace(self._order['key'], '***')}\n")
        sys.stderr.flush()


def main() -> int:
    order_fd, channel, agent_fd = map(int, sys.argv[1:4])
    with os.fdopen(order_fd) as file:
        order = json.load(file)
    for fd in (channel, agent_fd):
        os.set_inheritable(fd, False)
    return Warden(order, channel, agent_fd).run()


if __name__ == "__main__":
    sys.exit(main())
