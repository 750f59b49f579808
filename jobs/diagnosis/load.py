"""A case from a folder made by hand, an evidence bundle, or its zip. All of it is hostile: sizes, names, types."""

from __future__ import annotations

import csv
import json
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jobs.diagnosis.case import BadCase, Case, table_of

MAX_FILE_BYTES = 512 << 20
MAX_TOTAL_BYTES = 1 << 30
MAX_FACTS_BYTES = 16 << 20
MAX_ROWS = 200_000
MAX_FILES = 200
_ORDER = ("setup", "daemon", "bench", "service", "kernel")


def load_case(path: Path) -> Case:
    """The case at `path`: a folder or a bundle's zip. Raises `BadCase`."""
    try:
        if path.is_dir():
            return _case(dict(_folder_files(path)), path)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return _case(dict(_zip_files(archive)), path)
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
        raise BadCase(f"{path} can't be read: {error}") from error
    if not path.exists():
        raise BadCase(f"{path} does not exist; give a case folder, an unpacked bundle, or evidence.zip")
    raise BadCase(f"{path} is neither a folder nor a zip; give a case folder, an unpacked bundle, or evidence.zip")


Reader = Callable[[int], bytes]


def _folder_files(folder: Path) -> Iterator[tuple[str, Reader]]:
    roots = [folder, folder / "streams", folder / "artifacts"]
    for root in roots:
        for path in sorted(root.iterdir()) if root.is_dir() and not root.is_symlink() else []:
            if path.is_file() and not path.is_symlink():
                name = path.name if root is folder else f"{root.name}/{path.name}"
                yield name, _reader(path)


def _reader(path: Path) -> Reader:
    def read(most: int) -> bytes:
        with path.open("rb") as file:
            return file.read(most)

    return read


def _zip_files(archive: zipfile.ZipFile) -> Iterator[tuple[str, Reader]]:
    for info in archive.infolist()[:20_000]:
        parts = info.filename.split("/")
        if info.is_dir() or len(parts) > 2 or (len(parts) == 2 and parts[0] not in ("streams", "artifacts")):
            continue

        def read(most: int, info: zipfile.ZipInfo = info) -> bytes:
            with archive.open(info) as member:  # reads no more than is asked for, whatever the header says
                return member.read(most)

        yield info.filename, read


def _case(files: dict[str, Reader], path: Path) -> Case:
    case = Case()
    left = MAX_TOTAL_BYTES
    for name in sorted(files, key=_rank)[:MAX_FILES]:
        base = name.rpartition("/")[2]
        if base in ("case.toml", "manifest.json"):
            data = files[name](MAX_FACTS_BYTES)
            case.sources[base] = lines_of(data)
            _merge(case.facts, _facts(base, data, path))
        elif base.endswith(".csv") or (base.startswith("gpu") and base.endswith(".log")):
            case.gpu_file, case.gpu = base, rows_of(lines_of(files[name](min(MAX_FILE_BYTES, left))))
        elif _is_log(name):
            data = files[name](min(MAX_FILE_BYTES, left))
            left -= len(data)
            case.streams[base] = lines_of(data)
            if data and not data.endswith(b"\n"):
                case.torn.add(base)
    if not (case.streams or case.facts or case.gpu):
        raise BadCase(
            f"{path} holds neither case.toml, manifest.json nor a log; see docs/diagnosis.md for what a case holds"
        )
    return case


def _rank(name: str) -> tuple[int, str]:
    base = name.rpartition("/")[2]
    return next((i for i, word in enumerate(_ORDER) if base.startswith(word)), len(_ORDER)), name


def _is_log(name: str) -> bool:
    """Streams, and what a provider says; not a bundle's other artifacts, which are proofs and figures."""
    base = name.rpartition("/")[2]
    if name.startswith("artifacts/"):
        return "log" in base or "provider" in base
    return base.endswith((".log", ".txt", ".out", ".err", ".jsonl")) and base not in ("SHA256SUMS", "label.toml")


def lines_of(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "replace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return lines


def rows_of(lines: list[str]) -> list[dict[str, str]]:
    try:
        read = csv.reader(lines[: MAX_ROWS + 1], skipinitialspace=True)
        header = [name.strip().lower() for name in next(read, [])]
        return (
            [dict(zip(header, (cell.strip() for cell in row), strict=False)) for row in read if row] if header else []
        )
    except csv.Error:
        return []


def _facts(name: str, data: bytes, path: Path) -> dict[str, Any]:
    try:
        text = data.decode("utf-8")
        facts = tomllib.loads(text) if name == "case.toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadCase(f"{path}/{name} can't be parsed: {str(error)[:200]}; mend it, or leave the file away") from error
    if not isinstance(facts, dict):
        raise BadCase(f"{path}/{name} must hold tables, not a {type(facts).__name__}")
    return facts if name == "case.toml" else _from_manifest(facts)


def _from_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """A bundle's manifest in the shape of case.toml."""
    agent, told = table_of(manifest, "agent_manifest"), table_of(manifest, "case")
    return {
        **told,
        "run": {
            "exit_codes": manifest.get("exit_codes") or {},
            "signals": table_of(agent, "signals"),
            **table_of(told, "run"),
        },
        "hardware": {**table_of(manifest, "hardware"), **table_of(told, "hardware")},
        "telemetry": {**table_of(manifest, "telemetry"), **table_of(told, "telemetry")},
    }


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            into[key].update(value)
        else:
            into[key] = value
