"""What the agent is told by its environment, and the environment that its children get instead."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

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


def take_environment(environ: MutableMapping[str, str]) -> Environment:
    """Read the settings and make the directories; the token is removed from `environ`. Raises `BadEnvironment`."""
    url = environ.get("PROVEFLEET_AGENT_URL", "").rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise BadEnvironment("PROVEFLEET_AGENT_URL must be the http(s) address of the machine app")
    token = environ.pop("PROVEFLEET_BOOTSTRAP_TOKEN", "")
    if not token:
        raise BadEnvironment("PROVEFLEET_BOOTSTRAP_TOKEN is missing: an agent is started by its controller only")
    work = Path(environ.get("PROVEFLEET_WORK_DIR") or Path.cwd() / "work").absolute()
    cache = Path(environ.get("PROVEFLEET_CACHE_DIR") or work / "cache").absolute()
    for folder in (work, cache):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BadEnvironment(f"directory {folder} can't be made: {error}") from error
    return Environment(url, token, work, cache, environ.get("PROVEFLEET_IMAGE_DIGEST", ""))


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
