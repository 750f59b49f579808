"""Files that appear whole or not at all: written beside their place, flushed to disk, then renamed."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

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
    with staged(*contents) as files:
        for file, content in zip(files, contents.values(), strict=True):
            file.write(content)


@contextlib.contextmanager
def staged(*paths: str | os.PathLike[str]) -> Iterator[list[BinaryIO]]:
    """Files to write to, seekable, which become `paths` when the block ends well and vanish when it does not.

    Refused, with nothing left, when one can't be made, written or renamed.
    """
    files: list[BinaryIO] = []
    made: list[Path] = []
    target = Path(os.fspath(paths[0]))
    try:
        for target in map(Path, paths):
            made.append(target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.part"))
            files.append(made[-1].open("xb"))
        yield files
        for i, file in enumerate(files):
            target = Path(paths[i])
            file.flush()
            os.fsync(file.fileno())
        for target, temporary in zip(map(Path, paths), made, strict=True):
            temporary.replace(target)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Refused(
            f"{target}: cannot be written: {why}; check the folder, its permissions and free space"
        ) from error
    finally:
        for file in files:
            with contextlib.suppress(OSError):
                file.close()
        for temporary in made:
            with contextlib.suppress(OSError, ValueError):
                temporary.unlink(missing_ok=True)


def to_json(value: object) -> bytes:
    """`value` in snarkjs' style: indented by one space."""
    return json.dumps(value, indent=1).encode()


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Atomically writes `value` as JSON."""
    write_atomically(path, to_json(value))
