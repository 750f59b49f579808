"""All configuration: one class, each setting with a default that works.

Every field is read from the environment as `PROVEFLEET_<NAME>`; what is unset is
taken from the services that `provefleet up` starts itself (see `jobs.services`).
`docs/settings.md` explains each.
"""

from __future__ import annotations

import hashlib
import os
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobs.services import known
from jobs.services.errors import ServiceError

GIB = 1024**3
PREFIX = "PROVEFLEET_"
# `sun_path` has 108 bytes; the longest name in there is supervisord's `supervisor.sock.<pid>`.
LONGEST_SOCKETS_DIR = 80


def default_state_dir() -> Path:
    """`$XDG_STATE_HOME/provefleet`, as the XDG base directory specification has it."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "provefleet"


class Settings(BaseSettings):
    """The settings of one control plane. Empty strings mean "use the embedded service"."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True)

    state_dir: Path = Field(default_factory=default_state_dir)
    redis_url: SecretStr = SecretStr("")
    database_url: SecretStr = SecretStr("")
    s3_endpoint: str = ""
    s3_bucket: str = "provefleet"
    s3_region: str = "us-east-1"
    s3_access_key_id: str = ""
    s3_secret_access_key: SecretStr = SecretStr("")
    s3_public_endpoint: str = ""
    site_bind: str = ""
    site_url: str = ""
    agent_bind: str = ""
    public_url: str = ""
    vast_api_key: SecretStr = SecretStr("")
    vast_url: str = "https://console.vast.ai"
    payload_image: str = ""
    rent_disk_gb: int = Field(default=32, ge=8, le=10_000)
    rent_min_cuda: float = Field(default=13.0, ge=0)
    rent_min_compute_capability: float = Field(default=8.6, ge=0)
    credit_floor_dollars: float = Field(default=2.0, ge=0)
    prover_backend: Literal["auto", "scalar", "ifma", "cuda"] = "auto"
    max_upload_bytes: int = Field(default=64 * GIB, gt=0)

    workers: int = Field(default=2, ge=1, le=64)
    local_dollars_per_hour: float = Field(default=0.0, ge=0)
    local_cores_per_offer: int = Field(default=0, ge=0, description="0: all cores in one offer")
    lease_s: int = Field(default=900, ge=30)
    evidence_deadline_s: int = Field(default=120, ge=10)
    keep_passed_days: float = Field(default=0, ge=0, description="0: for ever")
    keep_failed_days: float = Field(default=0, ge=0, description="0: for ever")
    keep_cancelled_days: float = Field(default=0, ge=0, description="0: for ever")

    @field_validator("state_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        # Children run in other folders, and must mean the same one.
        return Path(os.path.abspath(value.expanduser()))

    @field_validator("site_bind", "agent_bind")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if value and not (host and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{value!r} is not HOST:PORT, such as 127.0.0.1:8000")
        return value

    @field_validator("s3_endpoint", "s3_public_endpoint", "public_url", "site_url", "vast_url")
    @classmethod
    def _web_address(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("it must begin with https:// or http://")
        return value.rstrip("/")

    @property
    def database_file(self) -> Path:
        """The embedded database."""
        return self.state_dir / "provefleet.db"

    @property
    def redis_socket(self) -> Path:
        """The socket of the embedded valkey."""
        return self.sockets_dir / "valkey.sock"

    @cached_property
    def sockets_dir(self) -> Path:
        """Where unix sockets live: in the state folder, or, when its path is too long for the
        108 bytes of `sun_path`, in a private folder of /tmp named after it."""
        here = self.state_dir / "run"
        if len(os.fsencode(here)) <= LONGEST_SOCKETS_DIR:
            return here
        digest = hashlib.sha256(os.fsencode(self.state_dir.resolve())).hexdigest()[:16]
        return Path("/tmp") / f"provefleet-{os.getuid()}-{digest}"  # noqa: S108 - made 0700, owner checked in jobs.services


def given_settings() -> Settings:
    """What the environment says, and nothing else. Raises ServiceError that names the setting."""
    try:
        settings = Settings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
        message = first["msg"].removeprefix("Value error, ")
        raise ServiceError(f"wrong setting {name}", message, "docs/settings.md explains each setting") from error
    missing = [
        PREFIX + name.upper()
        for name in ("s3_endpoint", "s3_access_key_id", "s3_secret_access_key")
        if not _filled(getattr(settings, name))
    ]
    if 0 < len(missing) < 3:
        raise ServiceError(
            "the S3 settings are incomplete",
            f"{' and '.join(missing)} must be set too",
            "Set all three, or none to use the embedded store (Amazon: https://s3.<region>.amazonaws.com)",
        )
    return settings


def load_settings() -> Settings:
    """The settings to work with: the environment first, the rest from the services that `provefleet up` runs
    on the state folder. Before the first `up`, addresses that it would choose are empty. Raises ServiceError."""
    settings = given_settings()
    return fill(settings, known.read(settings.state_dir))


def fill(settings: Settings, services: known.Known | None) -> Settings:
    """`settings` with what is empty taken from the embedded services."""
    here: dict[str, Any] = {
        "redis_url": SecretStr(f"unix://{quote(str(settings.redis_socket))}?db=0"),
        "database_url": SecretStr(f"sqlite:///{quote(str(settings.database_file))}"),
    }
    if services:
        here["site_bind"] = services.site_bind
        here["agent_bind"] = services.agent_bind
        if not settings.s3_endpoint:
            here["s3_endpoint"] = services.s3_endpoint
            here["s3_access_key_id"] = services.s3_access_key_id
            here["s3_secret_access_key"] = SecretStr(services.s3_secret_access_key)
    update = {name: value for name, value in here.items() if not _filled(getattr(settings, name))}
    full = settings.model_copy(update=update)
    if not full.public_url and full.agent_bind:
        full = full.model_copy(update={"public_url": f"http://{full.agent_bind}"})
    if not full.s3_public_endpoint:
        full = full.model_copy(update={"s3_public_endpoint": full.s3_endpoint})
    return full


def _filled(value: str | SecretStr) -> bool:
    return bool(value.get_secret_value() if isinstance(value, SecretStr) else value)
