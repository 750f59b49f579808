"""Starting an agent: its clean environment, its directory, and the launcher that makes it nobody's child."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from jobs.market.providers import base
from jobs.market.providers.local_offers import LocalOffer
from jobs.market.providers.local_processes import LABEL_VARIABLE
from jobs.services.errors import ServiceError
from jobs.services.state import private_folder
from jobs.settings import Settings

LAUNCH_WAIT_S = 30.0
MAX_WORK_PATH = 90  # of the 107 bytes of a unix socket's path, some for its name
_SHORT_NAME = 8


def start_agent(
    settings: Settings,
    folder: Path,
    offer: LocalOffer,
    label: str,
    env: Mapping[str, str],
    command: tuple[str, ...],
    lock_fd: int,
) -> None:
    """Start `command` in `folder` (fresh, 0700) on the cores and GPU of `offer`; returns once it runs.

    `lock_fd` is the market's lock: the launcher holds it too, until the instance can be listed. Raises
    `RentalRefused` (nothing runs), `ProviderUnavailable` (look the label up), OSError.
    """
    environment = _environment(settings, folder, offer, label, env)
    order = {
        "folder": str(folder),
        "cores": sorted(offer.cores),
        "command": list(command),
        "env": environment,
        "lock_fd": lock_fd,
        "record": {
            "label": label,
            "offer_id": offer.offer.offer_id,
            "machine_id": offer.offer.machine_id,
            "dollars_per_hour": offer.offer.dollars_per_hour,
            "cores": sorted(offer.cores),
            "gpu_uuid": offer.gpu_uuid,
        },
    }
    _launch(json.dumps(order), environment["PATH"], lock_fd)


def short_name(settings: Settings, folder: Path) -> Path:
    """Where the work directory of the instance in `folder` has a short name, if it needed one."""
    return settings.sockets_dir / folder.name[:_SHORT_NAME]


def _environment(
    settings: Settings, folder: Path, offer: LocalOffer, label: str, env: Mapping[str, str]
) -> dict[str, str]:
    cache = settings.state_dir.resolve() / "cache"
    params, numba = cache / "params", cache / "numba"
    for shared in (params, numba):
        shared.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "CUDA_VISIBLE_DEVICES": offer.gpu_uuid,
        "NUMBA_CACHE_DIR": str(numba),
        **{name: os.environ[name] for name in ("PROVEFLEET_CUDA_KERNELS",) if name in os.environ},
        "PROVEFLEET_CACHE_DIR": str(params),
        "PROVEFLEET_WORK_DIR": str(_work(settings, folder)),
        **env,
        LABEL_VARIABLE: label,
    }


def _work(settings: Settings, folder: Path) -> Path:
    """The agent's directory; under a short name where sockets in it would have too long a path."""
    work = folder / "work"
    work.mkdir(mode=0o700)
    if len(os.fsencode(work)) <= MAX_WORK_PATH:
        return work
    try:
        private_folder(settings.sockets_dir)
    except ServiceError as error:
        raise base.RentalRefused(str(error)) from error
    short = short_name(settings, folder)
    short.unlink(missing_ok=True)
    short.symlink_to(work)
    return short


def _launch(order: str, path: str, lock_fd: int) -> None:
    """The order goes by stdin: what is in argv, every user of the machine can read."""
    launcher = subprocess.Popen(
        [sys.executable, "-P", "-m", "jobs.market.providers.local_launcher"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={"PATH": path, "LANG": "C.UTF-8"}, pass_fds=(lock_fd,), start_new_session=True,
    )  # fmt: skip
    try:
        _, trouble = launcher.communicate(order.encode(), timeout=LAUNCH_WAIT_S)
    except subprocess.TimeoutExpired as error:
        launcher.kill()
        launcher.wait()
        raise base.ProviderUnavailable("the launcher does not answer; look the label up") from error
    if launcher.returncode != 0:
        why = trouble.decode(errors="replace").strip() or f"exit code {launcher.returncode}"
        raise base.RentalRefused(f"the agent could not be started here: {why.splitlines()[-1]}")
