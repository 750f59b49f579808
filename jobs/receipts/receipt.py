"""One receipt for each proof that the controller has verified.

A file is JSON: {"receipt": body, "key": public key, "signature": ...}, the last two in hex. The signature is Ed25519's
(RFC 8032) over `DOMAIN` and the body's canonical JSON: keys sorted, no spaces, ASCII.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from jobs.domain.models import Instance, Proof, Run
from jobs.kept_secret import kept_secret

VERSION = 1
DOMAIN = b"provefleet receipt v1\n"
KEY_FILE = "receipt_key"
MAX_BYTES = 4 << 20


class ReceiptInvalid(ValueError):
    """A receipt that does not hold; the text says what is wrong with it."""


def signing_key(state_dir: Path) -> Ed25519PrivateKey:
    """The controller's key: made once, kept in the state folder, readable by its owner only."""
    kept = kept_secret(state_dir, KEY_FILE, lambda: Ed25519PrivateKey.generate().private_bytes_raw().hex())
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(kept))


def public_hex(key: Ed25519PrivateKey) -> str:
    """The public half, 64 hex digits: what others check receipts with."""
    public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return public.hex()


def body_of(controller: str, run: Run, instance: Instance, proof: Proof) -> dict[str, Any]:
    """What is signed. Times are UTC milliseconds on the controller's clock, `machine_ms` the machine's own figure.

    `energy.joules` is what the machine's GPUs drew for this proof (`jobs.story.energy`), None where `unknown` says why.
    """
    key = run.zkey
    return {
        "version": VERSION,
        "controller": controller,
        "run": run.id,
        "instance": instance.id,
        "round": proof.round,
        "index": proof.index,
        "payload": run.payload,
        "image": {"expected": instance.image_expected, "ran": instance.image_ran},
        "machine": {
            "provider": instance.provider,
            "machine_id": instance.machine_id,
            "gpus": instance.gpu_names,
            "cpu": instance.facts.get("cpu_model", ""),
        },
        "inputs": {
            "key": key.name if key else "",
            "key_sha256": key.sha256 if key else "",
            "verification_key_sha256": _sha256(key.vkey) if key and key.vkey else "",
            "witness_sha256": proof.witness_sha256,
        },
        "public": proof.public,
        "proof": proof.proof,
        "verdict": proof.verdict,
        "pulled_ms": proof.pulled_ms,
        "received_ms": proof.received_ms,
        "machine_ms": proof.machine_ms,
        "energy": {
            "joules": proof.joules,
            "unknown": "" if proof.joules is not None else proof.joules_why or "its logs are not complete yet",
        },
    }


def signed(body: dict[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """The receipt of `body`."""
    return {"receipt": body, "key": public_hex(key), "signature": key.sign(DOMAIN + _canonical(body)).hex()}


def check(data: bytes, trusted: str) -> dict[str, Any]:
    """The body of a receipt that the controller of the public key `trusted` signed. Raises `ReceiptInvalid`."""
    if len(data) > MAX_BYTES:
        raise ReceiptInvalid(f"a receipt is at most {MAX_BYTES:,} bytes")
    try:
        told = json.loads(data)
        body, key, signature = told["receipt"], told["key"], bytes.fromhex(told["signature"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReceiptInvalid("not a receipt: JSON with receipt, key and signature is expected") from error
    if key != trusted.strip().lower():
        raise ReceiptInvalid("signed with another key than the one given; ask the controller for its public key")
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(signature, DOMAIN + _canonical(body))
    except ValueError as error:
        raise ReceiptInvalid("the public key is not one of Ed25519: 64 hex digits") from error
    except InvalidSignature as error:
        raise ReceiptInvalid("the signature does not fit: the receipt was changed after it was signed") from error
    if not isinstance(body, dict) or body.get("version") != VERSION:
        raise ReceiptInvalid("a receipt of another version; check it with the program that made it")
    if body.get("verdict") != "valid":
        raise ReceiptInvalid("the controller signed that this proof did not hold")
    return body


def _canonical(body: Any) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _sha256(value: Any) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()
