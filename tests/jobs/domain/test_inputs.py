"""Uploads: what can't be proved with is refused when it comes, with a reason, and leaves nothing behind."""

from __future__ import annotations

import io

import pytest
from sqlalchemy import func, select

from jobs.domain.inputs import InputRefused, InputTooLarge, clean_name, public_values, store_upload
from jobs.domain.models import Input
from tests.jobs.proofs import CHAIN, snarkjs
from tests.jobs.scene import Scene

ZKEY, WTNS = (CHAIN / "circuit.zkey").read_bytes(), (CHAIN / "witness.wtns").read_bytes()


def test_a_key_and_a_witness_tell_what_they_are(scene: Scene) -> None:
    key_id, witness_id = scene.upload_fixture()
    with scene.context.sessions() as session:
        key, witness = session.get_one(Input, key_id), session.get_one(Input, witness_id)
    assert key.facts["curve"] == witness.facts["curve"] == "bls12381"
    assert (key.facts["n_vars"], key.facts["n_public"]) == (witness.facts["n_witness"], 1)
    assert key.vkey is not None
    assert key.vkey["vk_alpha_1"] == snarkjs("vkey")["vk_alpha_1"]
    assert key.vkey["IC"] == snarkjs("vkey")["IC"]
    assert public_values(scene.context, witness, 1) == snarkjs("public")
    assert scene.context.store.get(key.object_key, 1 << 24) == ZKEY


@pytest.mark.parametrize(
    ("kind", "data", "word"),
    [
        ("zkey", b"", "empty"),
        ("zkey", b"zkey", "x.bin"),
        ("zkey", b"PK\x03\x04" + ZKEY[4:], "x.bin"),
        ("zkey", ZKEY[:-1000], "x.bin"),
        ("zkey", WTNS, "x.bin"),
        ("wtns", ZKEY, "x.bin"),
        ("wtns", WTNS[: len(WTNS) // 2], "x.bin"),
        ("wtns", WTNS + b"more", "x.bin"),
        ("r1cs", b"r1cs", "one of zkey, wtns"),
    ],
    ids=["empty", "tiny", "magic", "truncated", "witness-as-key", "key-as-witness", "half", "trailing", "kind"],
)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_what_is_refused(scene: Scene, kind: str, data: bytes, word: str) -> None:
    from hashlib import sha256

    with pytest.raises(InputRefused) as refused:
        store_upload(scene.context, kind, "../../x.bin", io.BytesIO(data), "anna")
    assert word in str(refused.value)
    assert "/tmp" not in str(refused.value)
    with scene.context.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Input)) == 1  # the scene's own
    assert not list(scene.context.store.list(f"inputs/{sha256(data).hexdigest()}"))
    assert not list(scene.context.store.list("uploads/"))


def test_too_large(scene: Scene) -> None:
    scene.context.settings = scene.context.settings.model_copy(update={"max_upload_bytes": 1000})
    with pytest.raises(InputTooLarge, match="PROVEFLEET_MAX_UPLOAD_BYTES"):
        store_upload(scene.context, "zkey", "big.zkey", io.BytesIO(ZKEY), "anna")


def test_a_refused_file_does_not_take_a_good_one_along(scene: Scene) -> None:
    key_id, _ = scene.upload_fixture()
    with pytest.raises(InputRefused):
        store_upload(scene.context, "wtns", "key-as-witness", io.BytesIO(ZKEY), "anna")
    with scene.context.sessions() as session:
        assert scene.context.store.get(session.get_one(Input, key_id).object_key, 1 << 24) == ZKEY


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a.zkey", "a.zkey"),
        ("C:\\keys\\a.zkey", "a.zkey"),
        ("../../etc/passwd", "passwd"),
        ("a\0b\n\x1b[31m.wtns", "ab[31m.wtns"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("x" * 999, "x" * 200),
    ],
)
def test_names_are_for_display_only(given: str, kept: str) -> None:
    assert clean_name(given) == kept
