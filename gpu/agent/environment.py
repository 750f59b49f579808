"""What the agent is told by its environment, and the environment that its children get instead."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

# A child gets nothing by default: the agent's environment holds its tokens, and on a marketplace the host's too.
_PASSED_ON = {
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PROVEFLEET_LABEL",
    "PROVEFLEET_CUDA_KERNELS",  # the image says where it has them
}
HARD_DEADLINE, EVIDENCE_DEADLINE = "PROVEFLEET_HARD_DEADLINE_S", "PROVEFLEET_EVIDENCE_DEADLINE_S"
WARDEN_FD = "PROVEFLEET_WARDEN_FD"
_PASSED_ON_PREFIXES = ("CUDA_", "NVIDIA_", "NUMBA_")


class BadEnvironment(ValueError):
    """A variable is missing or can't be used: which one, and what it must be."""


@dataclass(frozen=True)
class Environment:
    """The agent's own settings. `work` is this instance's directory, `cache` may be shared between instances."""

    url: str
    bootstrap_token: str = field(repr=False)
    work: Path
    cache: Path
    image_digest: str = ""
    warden_fd: int | None = None


@dataclass(frozen=True)
class OwnInstance:
    """The rented instance that we are: `url` is what a DELETE with `key` ends. `hard_deadline_s` from the start it
    ends itself whatever its controller says; `evidence_deadline_s` is what packing the evidence may take."""

    url: str
    key: str = field(repr=False)
    hard_deadline_s: float
    evidence_deadline_s: float


def take_own_instance(environ: MutableMapping[str, str]) -> OwnInstance | None:
    """What the marketplace and our controller say of the instance that we are, taken out of `environ`; None where no
    marketplace is. Raises `BadEnvironment`: an instance that could not end itself must not begin."""
    key, number = environ.pop("CONTAINER_API_KEY", ""), environ.get("CONTAINER_ID", "")
    base = environ.pop("PROVEFLEET_SELF_DESTROY_URL", "")
    hard, evidence = environ.pop(HARD_DEADLINE, ""), environ.pop(EVIDENCE_DEADLINE, "")
    if not base:
        return None
    if not key or not re.fullmatch(r"[0-9]{1,20}", number):
        raise BadEnvironment(
            "PROVEFLEET_SELF_DESTROY_URL is set, but the marketplace gave no CONTAINER_ID and CONTAINER_API_KEY: "
            "this instance could not end itself without its controller"
        )
    parts = urlsplit(base)
    loopback = parts.hostname in ("127.0.0.1", "localhost", "::1")
    if not base.endswith("/") or not (parts.scheme == "https" or (parts.scheme == "http" and loopback)):
        raise BadEnvironment("PROVEFLEET_SELF_DESTROY_URL must be https (or on loopback) and end with /")
    left_s = max(0.0, _seconds(HARD_DEADLINE, hard) - _begun_s_ago(_work(environ)))
    return OwnInstance(f"{base}{number}/", key, left_s, _seconds(EVIDENCE_DEADLINE, evidence))


def _begun_s_ago(work: Path) -> float:
    """Seconds since the instance first started, by its own clock: one that was stopped by the marketplace and started
    again has no new time. 0 where the disk does not remember."""
    begun = work / "begun"
    try:
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not begun.exists():
            begun.write_text(f"{time.time():.0f}")
        return max(0.0, time.time() - float(begun.read_text()))
    except (OSError, ValueError):
        return 0.0


def _seconds(name: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,8}(\.[0-9]{1,3})?", text) or float(text) <= 0:
        raise BadEnvironment(f"{name} must be a number of seconds, not {text[:20]!r}")
    return float(text)


def _work(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("PROVEFLEET_WORK_DIR") or Path.cwd() / "work").absolute()


def take_environment(environ: MutableMapping[str, str]) -> Environment:
    """Read the settings and make the directories; the token is removed from `environ`. Raises `BadEnvironment`."""
    url = environ.get("PROVEFLEET_AGENT_URL", "").rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise BadEnvironment("PROVEFLEET_AGENT_URL must be the http(s) address of the machine app")
    token = environ.pop("PROVEFLEET_BOOTSTRAP_TOKEN", "")
    if not token:
        raise BadEnvironment("PROVEFLEET_BOOTSTRAP_TOKEN is missing: an agent is started by its controller only")
    work = _work(environ)
    cache = Path(environ.get("PROVEFLEET_CACHE_DIR") or work / "cache").absolute()
    for folder in (work, cache):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BadEnvironment(f"directory {folder} can't be made: {error}") from error
    fd = environ.pop(WARDEN_FD, "")
    return Environment(
        url, token, work, cache, environ.get("PROVEFLEET_IMAGE_DIGEST", ""), int(fd) if fd.isdigit() else None
    )


def child_environment(work: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of the prover: a chosen few of our own variables, HOME, and what the spec declares."""
    chosen = {
        name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    chosen.setdefault("PATH", os.defpath)
    return {**chosen, "HOME": str(work), "PYTHONUNBUFFERED": "1", **extra}


def own_command(command: list[str]) -> list[str]:
    """`provefleet ...` run by this very interpreter, whatever PATH says; other commands as they are."""
    if command and command[0] == "provefleet":
        return [sys.executable, "-P", "-m", "provefleet", *command[1:]]
    return command
