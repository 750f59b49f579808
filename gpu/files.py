"""Files that appear whole or not at all: written beside their place, flushed to disk, then renamed."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path

from gpu.errors import Refused


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes `content` to `path` so that no reader and no crash ever sees a part of it. Refused when it
    can't.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        why = error.strerror or str(error)
        raise Refused(
            f"{target}: cannot be written: {why}; check the folder, its permissions and free space"
        ) from error


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Atomically writes `value` in snarkjs' style: indented by one space."""
    write_atomically(path, json.dumps(value, indent=1).encode())
