"""What all worlds of a process stand on: an empty migrated database, and an object store's client."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from pydantic import SecretStr

from jobs.context import Context
from jobs.domain import inputs
from jobs.domain.db import migrate
from jobs.domain.models import Input
from jobs.settings import Settings
from tests.crash.s3 import MemoryS3
from tests.fakes.memory import fast_parent
from tests.jobs.proofs import VKEY
from tests.jobs.scene import CIRCUIT


class Ground:
    """What all worlds of a process stand on, made once: an empty migrated database, an object store's client."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="provefleet-crash-", dir=fast_parent()))
        self.template = self.folder / "template.db"
        migrate(Settings(state_dir=self.folder, database_url=SecretStr(f"sqlite:///{self.template}")))
        context = Context(Settings(state_dir=self.folder, database_url=SecretStr(f"sqlite:///{self.template}")))
        facts = {"curve": "bls12381", "n_vars": 10, "n_public": 1}
        key = inputs.register(context, "zkey", "chain.zkey", "ab" * 32, 1000, facts, VKEY, "test")
        with context.sessions() as session:
            session.get_one(Input, key.id).circuit = CIRCUIT
            session.commit()
        context.engine.dispose()
        self.s3 = MemoryS3()
        self._files = 0

    def new_file(self) -> Path:
        self._files += 1
        return self.folder / f"world-{os.getpid()}-{self._files}.db"

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
