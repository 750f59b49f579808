"""`provefleet verify`: one proof, or a folder of many of one key in a batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

from gpu.errors import BadFile, ProofRejected, ProverError, Refused
from gpu.groth16 import own
from gpu.groth16.formats import Proof, VerificationKey, parse_proof, parse_public, parse_vkey, read_json


def verify_one(vkey: str, public: str, proof: str) -> None:
    """Prints OK when the proof holds; ProofRejected or BadFile otherwise."""
    key = read_vkey(vkey)
    own.check(key, *_read_statement(key, public, proof))
    click.echo("OK")


def verify_folder(vkey: str, folder: str) -> None:
    """Checks every FOLDER/<i>/public.json and proof.json, as `provefleet bench --out` writes them, in one batch.

    Prints a line for each that is rejected (or can't be read), and a summary; ProofRejected when there was one.
    Refused when there is nothing to check.
    """
    key = read_vkey(vkey)
    names = _proofs_in(folder)
    rejected: dict[str, ProverError] = {}
    statements: dict[str, tuple[list[int], Proof]] = {}
    for name in names:
        try:
            place = Path(folder) / name
            statements[name] = _read_statement(key, str(place / "public.json"), str(place / "proof.json"))
        except (ProofRejected, BadFile) as error:
            rejected[name] = error
    verdicts = zip(statements, own.check_many(key, list(statements.values())), strict=True)
    rejected |= {name: verdict for name, verdict in verdicts if verdict is not None}
    for name in names:
        if name in rejected:
            click.echo(f"{name}: rejected: {rejected[name]}")
    if rejected:
        raise ProofRejected(f"{len(rejected)} of the {len(names)} proofs in {folder}, see above")
    click.echo(f"OK: {len(names)} proof{'s' if len(names) > 1 else ''}")


def read_vkey(path: str) -> VerificationKey:
    """The key of a `vkey.json`, its points on their curves. BadFile when it is not one."""
    try:
        return parse_vkey(read_json(path, "verification key"))
    except ProofRejected as error:
        raise BadFile(path, "verification key", error.reason, "export it again (provefleet vkey)") from error


def read_public_values(path: str, key: VerificationKey) -> list[int]:
    """The values of a `public.json`, as many as the key has. BadFile when it is not JSON, ProofRejected for values
    that can't be right.
    """
    with _naming(path):
        return parse_public(read_json(path, "public values"), key)


def read_proof(path: str, key: VerificationKey) -> Proof:
    """The proof of a `proof.json`, on the key's curve. BadFile when it is not JSON, ProofRejected for a bad one."""
    with _naming(path):
        return parse_proof(read_json(path, "proof"), key.curve)


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """A rejection says which file it is about."""
    try:
        yield
    except ProofRejected as error:
        raise ProofRejected(f"{path}: {error.reason}") from error


def _read_statement(key: VerificationKey, public: str, proof: str) -> tuple[list[int], Proof]:
    return read_public_values(public, key), read_proof(proof, key)


def _proofs_in(folder: str) -> list[str]:
    """The names of the folders inside, by number where they are numbers."""
    try:
        names = [entry.name for entry in Path(folder).iterdir() if entry.is_dir()]
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadFile(folder, "folder", f"cannot be read: {why}", "give the folder that bench --out wrote") from error
    if not names:
        raise Refused(f"{folder}: no proofs in it: there is no <i>/proof.json; give the folder that bench --out wrote")
    return sorted(names, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
