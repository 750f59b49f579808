"""Files that are not what they say: refused at the upload, or the run fails with the reason; never the machine."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu.circuits import chain
from gpu.curve.params import curve_by_name
from jobs.domain.inputs import InputRefused, InputTooLarge
from jobs.domain.market_models import Mark
from jobs.domain.runs import InvalidRequest
from tests.scenarios.runs import FIXTURE, ask, the_key
from tests.scenarios.world import MAX_UPLOAD_BYTES, World

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(400)]

BN254 = FIXTURE.parent / "bn254_chain1k"
ZKEY, WTNS = (FIXTURE / "circuit.zkey").read_bytes(), (FIXTURE / "witness.wtns").read_bytes()
R = curve_by_name("bls12381").r


def section(data: bytes, wanted: int) -> int:
    """Where the bytes of a section of iden3's container begin."""
    at = 12
    while at < len(data):
        number, length = struct.unpack_from("<IQ", data, at)
        at += 12
        if number == wanted:
            return at
        at += length
    raise AssertionError(wanted)


def changed(data: bytes, at: int, to: bytes) -> bytes:
    return data[:at] + to + data[at + len(to) :]


def flipped(data: bytes, at: int) -> bytes:
    return changed(data, at, bytes([data[at] ^ 1]))


def value(index: int, number: int) -> bytes:
    """The witness with another value at `index`."""
    return changed(WTNS, section(WTNS, 2) + 32 * index, number.to_bytes(32, "little"))


REFUSED: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "a key of zero bytes": ("zkey", lambda: b"", "is empty"),
    "a witness of zero bytes": ("wtns", lambda: b"", "is empty"),
    "a truncated key": ("zkey", lambda: ZKEY[: len(ZKEY) // 2], "bytes"),
    "a key without its last byte": ("zkey", lambda: ZKEY[:-1], "bytes"),
    "a key cut inside its header": ("zkey", lambda: ZKEY[:7], "not even a header"),
    "a truncated witness": ("wtns", lambda: WTNS[:-33], "bytes"),
    "a circuit for a key": ("zkey", (FIXTURE / "circuit.r1cs").read_bytes, "magic"),
    "a witness for a key": ("zkey", lambda: WTNS, "magic"),
    "a key for a witness": ("wtns", lambda: ZKEY, "magic"),
    "a text for a witness": ("wtns", lambda: b"hello, world\n" * 9, "magic"),
    "a key with more behind it": ("zkey", lambda: ZKEY + b"more", "follow the last section"),
    "a key whose alpha is off the curve": ("zkey", lambda: flipped(ZKEY, section(ZKEY, 2) + 100), "not on the curve"),
    "a key whose IC is off the curve": ("zkey", lambda: flipped(ZKEY, section(ZKEY, 3) + 3), "not on the curve"),
    "a key of no field that we know": ("zkey", lambda: flipped(ZKEY, section(ZKEY, 2) + 9), "neither"),
    "a witness of no field that we know": ("wtns", lambda: flipped(WTNS, section(WTNS, 1) + 9), "neither"),
}


def test_refused_at_the_upload_with_the_reason(world: World) -> None:
    for what, (kind, make, why) in REFUSED.items():
        with pytest.raises(InputRefused) as refused:
            the_key(world, kind, make(), f"../../etc/{what}")
        said = str(refused.value)
        assert why in said, f"{what}: {said}"
        assert what in said, "it is named as the operator named it"
        assert "/tmp" not in said
        assert ".." not in said
    too_large = ZKEY + bytes(MAX_UPLOAD_BYTES)
    with pytest.raises(InputTooLarge, match="PROVEFLEET_MAX_UPLOAD_BYTES"):
        the_key(world, "zkey", too_large)
    names = ["../../../etc/passwd", "..\\..\\boot.ini", "/abs/olute.zkey", "a\0b\nc.zkey", ".", "x" * 5000]
    for name in names:
        stored = the_key(world, "zkey", name=name)
        assert "/" not in stored.name
        assert "\\" not in stored.name
        assert stored.name.isprintable()
        assert stored.object_key == f"inputs/{stored.sha256}"
    assert not (world.state_dir.parent / "etc").exists()


def test_refused_when_they_dont_belong_together(world: World, tmp_path: Path) -> None:
    key = the_key(world)
    on_bn254 = the_key(world, "wtns", (BN254 / "witness.wtns").read_bytes())
    other = tmp_path / "other.wtns"
    chain.write_wtns(512, "bls12381", 5, other)
    of_another = the_key(world, "wtns", other.read_bytes())
    for witness, why in ((on_bn254, "is on bn254"), (of_another, "belongs to another circuit")):
        with pytest.raises(InvalidRequest, match=why):
            ask(world, 2, zkey_id=key.id, witness_ids=[witness.id])
    with pytest.raises(InvalidRequest):
        ask(world, 2, zkey_id=on_bn254.id, witness_ids=[key.id])


def test_a_run_with_a_bad_file_fails_with_the_reason_and_no_machine_is_blamed(world: World) -> None:
    """What shows only in the proving itself. All are asked for at once; two go at a time."""
    key, witness = the_key(world), the_key(world, "wtns")
    bad_witnesses = {
        "a public value that is not below r": (value(1, R), "not below the field's modulus"),
        "a private value that is not below r": (value(700, R + 5), "not below the field's modulus"),
        "a witness that does not satisfy the circuit": (value(700, 12345), "does not satisfy"),
    }
    bad_keys = {
        "an off-curve point among the B2": (flipped(ZKEY, section(ZKEY, 7) + 192 * 40 + 5), "curve"),
    }
    runs = []
    for what, (data, why) in bad_witnesses.items():
        stored = the_key(world, "wtns", data, what)
        runs.append((what, why, ask(world, 2, zkey_id=key.id, witness_ids=[stored.id])))
    for what, (data, why) in bad_keys.items():
        stored = the_key(world, "zkey", data, what)
        runs.append((what, why, ask(world, 2, zkey_id=stored.id, witness_ids=[witness.id])))
    for what, why, asked in runs:
        row = asked.ends(150)
        assert row.state == "failed", f"{what}: {row.state}: {row.reason}"
        assert why in row.reason, f"{what}: {row.reason}"
        for instance in asked.instances():
            assert instance.evidence == "complete", f"{what}: {instance.evidence_text}"
    with world.context.sessions() as session:
        assert session.query(Mark).all() == []
    good = ask(world, 2, zkey_id=key.id, witness_ids=[witness.id])
    good.ends(90)
    good.passed_all()
