"""All configuration: one class, each setting with a default that works.

Every field is read from the environment as `PROVEFLEET_<NAME>`; what is unset is
taken from the services that `provefleet up` starts itself (see `jobs.services`).
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

GIB = 1024**3


def default_state_dir() -> Path:
    """`$XDG_STATE_HOME/provefleet`, as the XDG base directory specification has it."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "provefleet"


class Settings(BaseSettings):
    """The settings of one control plane. Empty strings mean "use the embedded service"."""

    model_config = SettingsConfigDict(env_prefix="PROVEFLEET_", frozen=True, extra="ignore")

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
    agent_bind: str = ""
    public_url: str = ""
    vast_api_key: SecretStr = SecretStr("")
    vast_url: str = "https://console.vast.ai"
    payload_image: str = ""
    prover_backend: Literal["auto", "scalar", "ifma", "cuda"] = "auto"
    max_upload_bytes: int = Field(64 * GIB, gt=0)

    workers: int = Field(2, ge=1, le=64)
    local_dollars_per_hour: float = Field(0.0, ge=0)
    local_cores_per_offer: int = Field(0, ge=0, description="0: all cores in one offer")
    lease_s: int = Field(900, ge=30)
    evidence_deadline_s: int = Field(120, ge=10)

    @cached_property
    def sockets_dir(self) -> Path:
        """Where unix sockets live: in the state folder, or, when its path is too long for the
        108 bytes of `sun_path`, in a private folder of /tmp named after it."""
        here = self.state_dir / "run"
        if len(os.fsencode(here)) <= 80:
            return here
        import hashlib

        digest = hashlib.sha256(os.fsencode(self.state_dir.resolve())).hexdigest()[:16]
        return Path("/tmp") / f"provefleet-{os.getuid()}-{digest}"  # noqa: S108 - made 0700, owner checked in jobs.services
