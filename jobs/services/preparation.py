"""The process of prepare.py, as `up` sees it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from jobs.services import child
from jobs.services.errors import ServiceError, explained
from jobs.services.programs import PYTHON
from jobs.services.supervision import last_lines


class Preparation:
    """The process of prepare.py."""

    def __init__(self, state_dir: Path, steps: list[str]) -> None:
        self._log = state_dir / "log" / "prepare.log"
        self._out = state_dir / "log" / "prepare.out"
        env = os.environ | {"PROVEFLEET_STATE_DIR": str(state_dir), child.PARENT: str(os.getpid())}
        argv = [*PYTHON, "-m", "jobs.services.prepare", *steps]
        with explained(self._log, "can't write"), open(self._log, "wb") as log, open(self._out, "wb") as out:
            self._process = subprocess.Popen(
                argv,
                cwd=state_dir,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Preparation:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.running:
            self._process.kill()
        self._process.wait(timeout=10)
        # It may hold the first password.
        self._out.unlink(missing_ok=True)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def password(self) -> str | None:
        """What it found out, once it has ended. Raises ServiceError when it failed."""
        results = [json.loads(line) for line in self._out.read_text().splitlines()]
        for result in results:
            if "error" in result:
                raise ServiceError(*result["error"])
        if self._process.returncode:
            raise ServiceError("the stores can't be prepared", last_lines(self._log, 1), f"See {self._log}")
        return next((r["password"] for r in results if r.get("step") == "database"), None)
