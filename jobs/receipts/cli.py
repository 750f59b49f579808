"""`provefleet receipt`: check a receipt without the site, or show the key that others check with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.group()
def receipt() -> None:
    """Signed receipts of verified proofs."""


@receipt.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--key", "trusted", help="The controller's public key, 64 hex digits. By default this controller's own.")
def verify(file: Path, trusted: str | None) -> None:
    """Check FILE: OK and what it says, or why it does not hold."""
    from jobs.receipts.receipt import MAX_BYTES, ReceiptInvalid, check

    with file.open("rb") as opened:
        data = opened.read(MAX_BYTES + 1)
    try:
        body = check(data, trusted or _own())
    except ReceiptInvalid as error:
        raise click.ClickException(f"{file}: {error}") from error
    machine = body["machine"]
    click.echo(
        f"OK: proof {body['index']} of run {body['run']} (round {body['round']}), made on {machine['provider']} "
        f"machine {machine['machine_id']}, verified by controller {body['controller']}{_energy(body)}"
    )


@receipt.command()
def key() -> None:
    """Print this controller's public key."""
    click.echo(_own())


def _energy(body: dict[str, Any]) -> str:
    joules = body.get("energy", {}).get("joules")
    return "" if joules is None else f", {joules:,.1f} J by the machine's own figures"


def _own() -> str:
    from jobs.receipts.receipt import public_hex, signing_key
    from jobs.settings import load_settings

    try:
        return public_hex(signing_key(load_settings().state_dir))
    except (OSError, ValueError) as error:
        raise click.ClickException(f"this controller's key can't be read: {error}; name one with --key") from error
