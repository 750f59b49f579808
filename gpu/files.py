"""Files that appear whole or not at all: written beside their place, flushed to disk, then renamed."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from gpu.errors import Refused


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes `content` to `path` so that no reader and no crash ever sees a part of it. Refused when it
    can't.
    """
    write_together({os.fspath(path): content})


def write_together(contents: Mapping[str, bytes]) -> None:
    """Writes several files; none of them appears before all have reached the disk. Refused, with nothing
    left, on failure.
    """
    staged: list[tuple[Path, Path]] = []
    target = Path()
    try:
        for name, content in contents.items():
            target = Path(name)
            temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
            staged.append((temporary, target))
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for temporary, target in staged:
            temporary.replace(target)
    except (OSError, ValueError) as error:
        for temporary, _ in staged:
            with contextlib.suppress(OSError, ValueError):
                temporary.unlink(missing_ok=True)
        why = getattr(error, "strerror", None) or str(error)
        raise Refused(
            f"{target}: cannot be written: {why}; check the folder, its permissions and free space"
        ) from error


def to_json(value: object) -> bytes:
    """`value` in snarkjs' style: indented by one space."""
    return json.dumps(value, indent=1).encode()


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Atomically writes `value` as JSON."""
    write_atomically(path, to_json(value))
