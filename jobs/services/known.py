"""What `up` generated at its first start and every later one reuses: `services.json` in the state folder.

Standard library only: `jobs.settings` reads it, and settings are loaded by every command.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from jobs.services.errors import ServiceError, explained

FILE = "services.json"
VERSION = 1
# Ports of the S3 server that nothing but its own parts talks to; `s3` is the one that is published.
S3_PORTS = (
    "s3",
    "s3_grpc",
    "master",
    "master_grpc",
    "volume",
    "volume_grpc",
    "filer",
    "filer_grpc",
)


@dataclass(frozen=True)
class Known:
    """Addresses (`host:port`) and keys of the embedded services. Ports stay the same from start to start."""

    site_bind: str
    agent_bind: str
    s3_ports: dict[str, int]
    s3_access_key_id: str
    s3_secret_access_key: str = field(repr=False)
    s3_token_key: str = field(repr=False)
    version: int = VERSION

    @property
    def s3_endpoint(self) -> str:
        return f"http://127.0.0.1:{self.s3_ports['s3']}"

    def with_ports(self, *, site: str, agent: str, s3: dict[str, int]) -> Known:
        return replace(self, site_bind=site, agent_bind=agent, s3_ports=s3)


def generate() -> Known:
    """A new identity without ports: port 0 means "not chosen yet"."""
    return Known(
        site_bind="127.0.0.1:0",
        agent_bind="127.0.0.1:0",
        s3_ports=dict.fromkeys(S3_PORTS, 0),
        s3_access_key_id="pf" + secrets.token_hex(9),
        s3_secret_access_key=secrets.token_urlsafe(30),
        s3_token_key=secrets.token_urlsafe(30),
    )


def read(state_dir: Path) -> Known | None:
    """The known services, or None when `up` never ran on this folder. Raises ServiceError when unreadable."""
    path = state_dir / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        known = Known(**data)
        if known.version != VERSION or set(known.s3_ports) != set(S3_PORTS):
            raise ValueError(f"version {known.version}, this program writes version {VERSION}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ServiceError(f"can't read {path}", error.strerror or str(error), "Run as its owner") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ServiceError(
            f"{path} is damaged",
            str(error).split("\n")[0][:120],
            "Restore it from a backup; it holds the keys of the S3 store beside it",
        ) from error
    return known


def write(state_dir: Path, known: Known) -> None:
    """Replaces `services.json` in one step, mode 0600."""
    write_private(state_dir / FILE, json.dumps(asdict(known), indent=2) + "\n")


def write_private(path: Path, text: str) -> None:
    """Writes `path` with mode 0600, in one step and durably: after a crash it is the old file or the new one."""
    beside = path.with_name(path.name + ".new")
    with explained(path, "can't write"):
        beside.unlink(missing_ok=True)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
