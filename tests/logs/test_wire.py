from __future__ import annotations

import dataclasses
import json

import pytest

from logs import wire
from logs.wire import ChunkRecord, WireError, chain_hash

RECORD = ChunkRecord(3, 17, 2, 1000, 1500, 40, "a" * 64, "b" * 64)


def test_json_round_trip() -> None:
    assert ChunkRecord.from_json(RECORD.to_json()) == RECORD
    assert RECORD.to_json() == json.dumps(json.loads(RECORD.to_json()), sort_keys=True, separators=(",", ":"))
    assert RECORD.next_line == 19


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq", -1),
        ("seq", 10**10),
        ("seq", True),
        ("seq", 1.0),
        ("seq", "1"),
        ("first_line", 0),
        ("lines", -1),
        ("lines", 41),
        ("raw_bytes", 0),
        ("raw_bytes", 65537),
        ("t_first_ms", -1),
        ("t_first_ms", 1501),
        ("t_last_ms", 2**53),
        ("raw_sha256", "A" * 64),
        ("raw_sha256", "a" * 63),
        ("raw_sha256", "a" * 64 + "\n"),
        ("prev_sha256", None),
    ],
)
def test_bad_fields_are_refused(field: str, value: object) -> None:
    with pytest.raises(WireError):
        ChunkRecord.from_dict({**RECORD.to_dict(), field: value})


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{}", "{", "\xff", '{"seq":NaN}', "[" * 900, "9" * 1000, "x" * 2000, b"\xff\xfe\xff"],
)
def test_bad_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(WireError):
        ChunkRecord.from_json(text)


def test_unknown_and_missing_fields_are_refused() -> None:
    record = RECORD.to_dict()
    with pytest.raises(WireError, match="extra"):
        ChunkRecord.from_dict({**record, "extra": 1})
    del record["lines"]
    with pytest.raises(WireError, match="lines"):
        ChunkRecord.from_dict(record)


def test_chain_hash_covers_every_field() -> None:
    changed = [
        dataclasses.replace(RECORD, **{name: value})
        for name, value in {
            "seq": 4,
            "first_line": 18,
            "lines": 3,
            "t_first_ms": 999,
            "t_last_ms": 1501,
            "raw_bytes": 41,
            "raw_sha256": "c" * 64,
            "prev_sha256": "c" * 64,
        }.items()
    ]
    assert len({chain_hash(record) for record in [RECORD, *changed]}) == 9


@pytest.mark.parametrize("name", ["a", "bench", "gpu-0", "a_b-c9", "a" * 32])
def test_good_stream_names(name: str) -> None:
    assert wire.check_stream_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "A", "9a", "_a", "-a", "a" * 33, "a/b", "a.b", "..", "a\n", "a\0", "ä", " a", None, 5, b"a"]
)
def test_bad_stream_names(name: object) -> None:
    with pytest.raises(WireError):
        wire.check_stream_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "proofs.json",
        "a/b/c.txt",
        "proof-0.json",
        "_x",
        "x" * 100,
        "a/" * 7 + "b",
        "console.log",
        "nullx",
        "A+b@c=d",
    ],
)
def test_good_artifact_names(name: str) -> None:
    assert wire.check_artifact_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/../b",
        "a/..",
        "/etc/passwd",
        "a//b",
        "a/",
        "/",
        "a\\b",
        "..\\x",
        "C:\\x",
        "c:x",
        "a\0b",
        "a\nb",
        "a\x1bb",
        "a\u202eb",
        "ä",
        "\uff0e\uff0e/x",
        ".hidden",
        "a/.ssh",
        "-rf",
        "--x/y",
        "x.",
        "a./b",
        "x ",
        " x",
        "CON",
        "con.txt",
        "a/NUL",
        "lpt1.log",
        "Com9",
        "aux",
        "x" * 101,
        "a/" * 8 + "b",
        "ab/" * 79 + "abcd",
        "%2e%2e/x",
        "a*b",
        "a?b",
        'a"b',
        "a|b",
        "~/x",
        "$HOME",
        "a;b",
        "x\u2028",
        None,
        7,
        b"x",
    ],
)
def test_bad_artifact_names(name: object) -> None:
    with pytest.raises(WireError):
        wire.check_artifact_name(name)


def test_keys() -> None:
    assert wire.chunk_key("r1", "i1", "bench", 42) == "runs/r1/i1/bench/0000000042.zst"
    assert wire.artifact_key("r1", "i1", "a/b.json") == "runs/r1/i1/_artifacts/a/b.json"
    assert wire.input_key("a" * 64) == "inputs/" + "a" * 64
    singles = {wire.manifest_key("r", "i"), wire.bundle_key("r", "i"), wire.emergency_key("r", "i")}
    assert len(singles) == 3
    # No stream may be named so that its chunks land among these.
    assert all(key.removeprefix("runs/r/i/").startswith("_") for key in singles)


@pytest.mark.parametrize("bad", ["", "..", "a/b", "a b", "-a", "x" * 65, "a\n", None])
def test_ids_in_keys_are_checked(bad: str) -> None:
    with pytest.raises(WireError):
        wire.chunk_key(bad, "i", "bench", 0)
    with pytest.raises(WireError):
        wire.manifest_key("r", bad)


@pytest.mark.parametrize("seq", [-1, 10**10, True, 1.0])
def test_seq_in_keys_is_checked(seq: int) -> None:
    with pytest.raises(WireError):
        wire.chunk_key("r", "i", "bench", seq)


def test_input_key_wants_a_digest() -> None:
    with pytest.raises(WireError):
        wire.input_key("../" + "a" * 61)


def test_errors_never_echo_control_characters() -> None:
    with pytest.raises(WireError) as caught:
        wire.check_artifact_name("\x1b[31m\u202e" + "y" * 500)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200
