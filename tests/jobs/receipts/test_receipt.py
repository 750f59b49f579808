"""Receipts of real proofs: they hold, and nothing in them can be changed."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jobs.domain.models import Instance, Proof, Run
from jobs.receipts.cli import receipt
from jobs.receipts.receipt import ReceiptInvalid, body_of, check, public_hex, signed, signing_key
from tests.jobs.scene import Scene


@pytest.fixture
def body(scene: Scene) -> dict[str, Any]:
    agent = scene.working(proofs=1)
    scene.clock.advance(5)
    agent.prove(0)
    scene.tick_until(lambda: scene.proofs(agent.run_id)[0].verdict == "valid")
    with scene.context.sessions() as session:
        proof = session.get_one(Proof, scene.proofs(agent.run_id)[0].id)
        run, instance = session.get_one(Run, agent.run_id), session.get_one(Instance, agent.instance_id)
        return body_of("c0ffee", run, instance, proof)


def test_it_holds_and_no_field_of_it_can_be_changed(body: dict[str, Any]) -> None:
    key = Ed25519PrivateKey.generate()
    whole = signed(body, key)
    assert check(json.dumps(whole).encode(), public_hex(key)) == body
    assert body["verdict"] == "valid"
    assert body["inputs"]["witness_sha256"]
    for name in body:
        for value in ("other", None, 7, {}):
            if body[name] != value:
                changed = {**whole, "receipt": {**body, name: value}}
                with pytest.raises(ReceiptInvalid):
                    check(json.dumps(changed).encode(), public_hex(key))
        missing = {**whole, "receipt": {k: v for k, v in body.items() if k != name}}
        with pytest.raises(ReceiptInvalid):
            check(json.dumps(missing).encode(), public_hex(key))


def test_another_key_and_a_proof_that_did_not_hold(body: dict[str, Any]) -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    with pytest.raises(ReceiptInvalid, match="another key"):
        check(json.dumps(signed(body, other)).encode(), public_hex(key))
    forged = {**signed(body, other), "key": public_hex(key)}
    with pytest.raises(ReceiptInvalid, match="changed after"):
        check(json.dumps(forged).encode(), public_hex(key))
    with pytest.raises(ReceiptInvalid, match="did not hold"):
        check(json.dumps(signed({**body, "verdict": "invalid"}, key)).encode(), public_hex(key))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"null", b'{"receipt":1,"key":2,"signature":3}', b"\xff", b"[" * 9999]
)
def test_what_is_no_receipt(data: bytes) -> None:
    with pytest.raises(ReceiptInvalid):
        check(data, "ab" * 32)


def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    first = signing_key(tmp_path / "state")
    assert public_hex(signing_key(tmp_path / "state")) == public_hex(first)
    assert stat.S_IMODE((tmp_path / "state" / "receipt_key").stat().st_mode) == 0o600


def test_the_command(body: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVEFLEET_STATE_DIR", str(tmp_path / "s"))
    own = CliRunner().invoke(receipt, ["key"]).output.strip()
    file = tmp_path / "r.json"
    file.write_text(json.dumps(signed(body, signing_key(tmp_path / "s"))))
    for arguments in ([str(file)], [str(file), "--key", own.upper()]):
        done = CliRunner().invoke(receipt, ["verify", *arguments])
        assert done.exit_code == 0, done.output
        assert f"proof 0 of run {body['run']}" in done.output
    file.write_text(file.read_text().replace('"valid"', '"Valid"'))
    bad = CliRunner().invoke(receipt, ["verify", str(file)])
    assert bad.exit_code == 1
    assert "changed after it was signed" in bad.output
    assert CliRunner().invoke(receipt, ["verify", str(file), "--key", "zz"]).exit_code == 1
