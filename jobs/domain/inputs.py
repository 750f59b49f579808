"""Proving keys and witnesses: stored by content in the archive, looked at before anything is rented for them.

A file that can't be proved with is refused here, with the reason, and not after a machine has been paid for.
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from gpu.errors import BadFile
from gpu.groth16.formats import vkey_from_zkey
from gpu.groth16.wtns import inspect_wtns, read_public
from gpu.groth16.zkey import inspect_zkey
from jobs.domain.models import Input
from jobs.domain.tables import Json
from jobs.domain.work import record, transaction
from logs.errors import StoreError, TooLarge
from logs.multipart import upload_stream
from logs.wire import WireError

if TYPE_CHECKING:
    from jobs.context import Context
    from logs.store import Store

KINDS = ("zkey", "wtns")
MAX_SECTIONS = 64
HEAD_BYTES = 4 << 20
IC_SECTION = 3


class InputRefused(ValueError):
    """The file is not what it says: what is wrong with it and what to do."""


class InputTooLarge(InputRefused):
    """More bytes than `PROVEFLEET_MAX_UPLOAD_BYTES`."""


def clean_name(filename: str) -> str:
    """The last part of a path as the browser sent it, for display only: objects are named by their content."""
    name = filename.replace("\\", "/").rsplit("/", 1)[-1]
    name = "".join(c for c in name if c.isprintable()).strip().lstrip(".")
    return name[:200] or "unnamed"


def sparse_copy(store: Store, key: str, target: Path) -> None:
    """A local file of the object's size that holds what its facts are read from, and holes elsewhere.

    iden3's container states each section's length before its bytes, so a key of many gigabytes is looked at
    by reading its section headers, the head of each section and the verification key's points.
    """
    size = store.head(key).bytes
    with target.open("wb") as file:
        file.truncate(size)

        def fetch(start: int, length: int) -> bytes:
            data = b"".join(store.open_range(key, start, length))
            file.seek(start)
            file.write(data)
            return data

        head = fetch(0, 12)
        if len(head) < 12:
            return
        at = 12
        for _ in range(min(struct.unpack_from("<I", head, 8)[0], MAX_SECTIONS)):
            header = fetch(at, 12) if at + 12 <= size else b""
            if len(header) < 12:
                return
            number, length = struct.unpack("<IQ", header)
            at += 12
            fetch(at, length if number == IC_SECTION else min(length, HEAD_BYTES))
            at += length


def _facts(kind: str, path: Path) -> tuple[Json, Json | None]:
    if kind == "wtns":
        witness = inspect_wtns(path)
        return {"curve": witness.curve.name, "n_witness": witness.n_witness}, None
    key = inspect_zkey(path)
    facts = {
        "curve": key.curve.name,
        "n_vars": key.n_vars,
        "n_public": key.n_public,
        "domain_size": key.domain_size,
        "n_coefficients": key.n_coefficients,
    }
    return facts, vkey_from_zkey(path)


def inspect(kind: str, name: str, path: Path) -> tuple[Json, Json | None]:
    """Facts of the file at `path`, and for a key its verification key. Raises `InputRefused` in the file's own name."""
    try:
        return _facts(kind, path)
    except BadFile as error:
        raise InputRefused(str(error).replace(str(path), name)) from error


def store_upload(context: Context, kind: str, filename: str, fileobj: IO[bytes], actor: str) -> Input:
    """Stream a key or witness to the archive and look at it there.

    Raises `InputRefused` (empty, foreign, truncated, mismatched), `InputTooLarge`, `logs.errors.StoreError`;
    a refused file leaves no object behind that nobody else refers to.
    """
    if kind not in KINDS:
        raise InputRefused(f"an input is one of {', '.join(KINDS)}, not {kind!r}")
    name = clean_name(filename)
    limit = context.settings.max_upload_bytes
    try:
        sha256, size = upload_stream(context.store, cast(BinaryIO, fileobj), limit, context.new_id())
    except TooLarge as error:
        raise InputTooLarge(
            f"{name} has more than {limit:,} bytes, the limit of PROVEFLEET_MAX_UPLOAD_BYTES; "
            "raise it or send a smaller file"
        ) from error
    except WireError as error:
        raise InputRefused(f"{name} is empty (0 bytes); choose the file again") from error
    key = f"inputs/{sha256}"
    with tempfile.TemporaryDirectory(prefix="provefleet-inspect-") as folder:
        path = Path(folder) / "input"
        sparse_copy(context.store, key, path)
        try:
            facts, vkey = inspect(kind, name, path)
        except InputRefused:
            _drop_unreferenced(context, sha256, key)
            raise
    return register(context, kind, name, sha256, size, facts, vkey, actor)


def _drop_unreferenced(context: Context, sha256: str, key: str) -> None:
    with context.sessions() as session:
        if session.query(Input).filter(Input.sha256 == sha256).first() is not None:
            return
    try:
        context.store.delete(key)
    except StoreError:
        return  # a stray object costs bytes only; what the operator must read is why the file was refused


def register(
    context: Context, kind: str, name: str, sha256: str, size: int, facts: Json, vkey: Json | None, actor: str
) -> Input:
    """The row of an input whose bytes are in the archive under `inputs/<sha256>`."""
    row = Input(
        id=context.new_id(),
        kind=kind,
        name=name,
        state="ready",
        sha256=sha256,
        size_bytes=size,
        object_key=f"inputs/{sha256}",
        facts=facts,
        vkey=vkey,
        created_by=actor,
        created_ms=context.now_ms(),
    )
    with transaction(context) as session:
        session.add(row)
        record(
            session,
            context.now_ms(),
            actor,
            "input.stored",
            f"{name}, {size} bytes",
            data={"sha256": sha256, "kind": kind},
        )
    return row


def public_values(context: Context, witness: Input, n_public: int) -> list[str]:
    """The public values that a stored witness states: what its proof must be for. Raises `InputRefused`."""
    with tempfile.TemporaryDirectory(prefix="provefleet-inspect-") as folder:
        path = Path(folder) / "witness"
        sparse_copy(context.store, witness.object_key, path)
        try:
            return [str(value) for value in read_public(path, n_public)]
        except BadFile as error:
            raise InputRefused(str(error).replace(str(path), witness.name)) from error


def mismatch(key: Input, witness: Input) -> str:
    """Why this witness can't be of this key's circuit; '' where sizes and curve agree."""
    if key.facts["curve"] != witness.facts["curve"]:
        return (
            f"{witness.name} is on {witness.facts['curve']}, {key.name} on {key.facts['curve']}; "
            "upload a witness of this key"
        )
    if key.facts["n_vars"] != witness.facts["n_witness"]:
        return (
            f"{witness.name} has {witness.facts['n_witness']} values, {key.name} wants {key.facts['n_vars']}: "
            "it belongs to another circuit; make the witness with the program of this key"
        )
    return ""
