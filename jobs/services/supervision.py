"""supervisord: its file, its start and its end."""

from __future__ import annotations

import json
import os
import pwd
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs.services import child, control
from jobs.services.errors import ServiceError, explained
from jobs.services.known import write_private
from jobs.services.programs import APP, PYTHON, STORES, Program
from jobs.services.state import Lock, kill_leftovers, programs_left

# No path of the operator's stands in the file, which has two layers of quoting rules: it is read in the state
# folder, and Python's own path comes from the environment.
_HEAD = """\
[supervisord]
nodaemon=true
silent=true
identifier=provefleet
umask=077
minfds={minfds}
logfile=log/supervisord.log
logfile_maxbytes=2MB
logfile_backups=1
pidfile=supervisord.pid
{user}

[unix_http_server]
file={socket}
chmod=0700

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
"""
# A crash is retried after 1, 2, 3 ... s; `up` starts again what supervisord gave up (see up.py).
_PROGRAM = """
[program:{name}]
command="%(ENV_PROVEFLEET_PYTHON)s" -P -m jobs.services.child {name}
autostart=false
autorestart=true
startsecs=3
startretries=8
stopsignal=TERM
stopwaitsecs={stop_wait_s}
killasgroup=true
redirect_stderr=true
stdout_logfile=log/{name}.log
stdout_logfile_maxbytes=5MB
stdout_logfile_backups=2
"""
# The higher priority stops first, and the next group only when it has ended.
_PRIORITY = {STORES: 100, APP: 900}


def configuration(programs: Sequence[Program], sockets_dir: Path) -> str:
    """The text of supervisord's file. `sockets_dir` is relative to the state folder, or one of ours in /tmp."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    minfds = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    # Without a name, root is warned about at each start.
    user = f"user={pwd.getpwuid(0).pw_name}" if os.geteuid() == 0 else ""
    text = _HEAD.format(minfds=minfds, user=user, socket=sockets_dir / control.SOCKET)
    for program in programs:
        text += _PROGRAM.format(name=program.name, stop_wait_s=program.stop_wait_s)
    for group, priority in _PRIORITY.items():
        names = [program.name for program in programs if program.group == group]
        if names:
            text += f"\n[group:{group}]\nprograms={','.join(names)}\npriority={priority}\n"
    return text


class Supervisor:
    """A supervisord that we started. It ends in order on SIGTERM, and gets one when we die."""

    def __init__(self, state_dir: Path, sockets_dir: Path, programs: Sequence[Program]) -> None:
        self.state_dir = state_dir
        self.control = control.Control(sockets_dir)
        self._sockets_dir = sockets_dir
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, lock: Lock) -> None:
        """Starts it with no program running yet. Raises ServiceError."""
        inside = self._sockets_dir.is_relative_to(self.state_dir)
        sockets_dir = self._sockets_dir.relative_to(self.state_dir) if inside else self._sockets_dir
        write_private(self.state_dir / child.CONFIG, configuration(self._programs, sockets_dir))
        own = {
            "argv": [*PYTHON, "-m", "jobs.services.supervise"],
            "env": {},
            "cwd": str(self.state_dir),
        }
        specs = {
            p.name: {"argv": p.argv, "env": p.env, "cwd": str(p.cwd or self.state_dir)} for p in self._programs
        } | {child.SUPERVISORD: own}
        write_private(self.state_dir / child.SPECS, json.dumps(specs))
        env = os.environ | {
            "PROVEFLEET_STATE_DIR": str(self.state_dir),
            "PROVEFLEET_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
            child.PARENT: str(os.getpid()),
        }
        log = self.state_dir / "log" / "supervisord.err"
        with explained(log, "can't write"), open(log, "wb") as errors:
            self._process = subprocess.Popen(
                [*PYTHON, "-m", "jobs.services.child", child.SUPERVISORD],
                cwd=self.state_dir,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=(lock.fd,),
                # Ctrl-C reaches the whole foreground group: only `up` may hear it, for the order's sake.
                start_new_session=True,
            )
        self._wait_until_it_answers(log)

    def _wait_until_it_answers(self, log: Path) -> None:
        for _ in range(200):
            if not self.alive:
                break
            try:
                self.control.processes()
            except control.Unreachable:
                time.sleep(0.05)
            else:
                return
        self.kill()
        raise ServiceError("supervisord does not start", last_lines(log, 3) or "it says nothing", f"See {log}")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def stop(self, timeout_s: float, tell: Callable[[str], None]) -> bool:
        """Stops everything in order. False when it took too long and was killed."""
        deadline = time.monotonic() + timeout_s
        if self._process and self.alive:
            self._process.send_signal(signal.SIGTERM)
        told = ""
        # Where supervisord was killed, its programs have got their SIGTERM from the kernel.
        while (self.alive or programs_left(self.state_dir)) and time.monotonic() < deadline:
            told = self._tell_who_is_left(told, tell)
            time.sleep(0.2)
        in_time = time.monotonic() < deadline
        self.kill()
        return in_time

    def _tell_who_is_left(self, told: str, tell: Callable[[str], None]) -> str:
        try:
            left = ", ".join(p.name for p in self.control.processes() if p.state in (*control.UP, "STOPPING"))
        except control.Unreachable:
            return told
        if left and left != told:
            tell(f"stopping: {left}")
        return left

    def kill(self) -> None:
        """Ends supervisord and whatever is left of its programs, now."""
        if self._process and self.alive:
            self._process.kill()
        if self._process:
            self._process.wait(timeout=10)
        kill_leftovers(self.state_dir)


def last_lines(path: Path, count: int) -> str:
    """The last lines of a log in one line, for an error message."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 8192))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return " | ".join([line.strip() for line in lines if line.strip()][-count:])
