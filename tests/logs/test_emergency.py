from __future__ import annotations

import io
import json
import struct
import time
import warnings
import zipfile
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs import emergency
from logs.chunks import check_successor, open_frame
from logs.emergency import EmergencyRefused, pack_emergency, unpack_emergency
from logs.wire import MAX_AGENT_MANIFEST_BYTES, ChunkRecord, WireError
from tests.logs.conftest import cut_all


def spooled() -> list[tuple[str, ChunkRecord, bytes]]:
    return [
        (stream, record, frame)
        for stream in ("bench", "gpu")
        for record, frame in cut_all(stream, [b"line of %s\n" % stream.encode()] * 40)
    ]


def packed() -> bytes:
    out = io.BytesIO()
    pack_emergency(out, {"reason": "lease"}, spooled())
    return out.getvalue()


def test_round_trip_keeps_chunks_checkable() -> None:
    chunks = spooled()
    out = io.BytesIO()
    assert pack_emergency(out, {"reason": "lease"}, chunks) == len(chunks)
    opened = unpack_emergency(out)
    assert opened.manifest == {"reason": "lease"}
    got = list(opened.chunks)
    assert got == chunks
    previous: dict[str, ChunkRecord] = {}
    for stream, record, frame in got:
        open_frame(frame, record)
        check_successor(previous.get(stream), record)
        previous[stream] = record


def test_packing_stops_at_the_limit() -> None:
    out = io.BytesIO()
    count = pack_emergency(out, {}, spooled(), max_bytes=3000)
    assert 0 < count < len(spooled())
    assert len(out.getvalue()) <= 3000
    assert len(list(unpack_emergency(out).chunks)) == count


def test_packing_refuses_a_huge_manifest() -> None:
    with pytest.raises(WireError):
        pack_emergency(io.BytesIO(), {"x": "y" * MAX_AGENT_MANIFEST_BYTES}, [])


def zip_of(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.comment = comment
    return out.getvalue()


def twice() -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("manifest.json", b"{}")
        archive.writestr("manifest.json", b'{"a": 1}')
    return out.getvalue()


def with_member(name: str) -> Callable[[], bytes]:
    return lambda: zip_of({"manifest.json": b"{}", name: b"x"})


RECORD_JSON = spooled()[0][1].to_json().encode()
HOSTILE: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "not a zip": lambda: b"x" * 1000,
    "truncated": lambda: packed()[:-5],
    "bytes after": lambda: packed() + b"x",
    "comment": lambda: zip_of({"manifest.json": b"{}"}, comment=b"hello"),
    "no manifest": lambda: zip_of({}),
    "manifest not JSON": lambda: zip_of({"manifest.json": b"{"}),
    "manifest with NaN": lambda: zip_of({"manifest.json": b'{"a": NaN}'}),
    "manifest a list": lambda: zip_of({"manifest.json": b"[]"}),
    "manifest nested": lambda: zip_of({"manifest.json": b"[" * 100_000}),
    "manifest too large": lambda: zip_of({"manifest.json": b" " * (MAX_AGENT_MANIFEST_BYTES + 1)}),
    "deflated": lambda: zip_of({"manifest.json": b"{}" + b" " * 900_000}, zipfile.ZIP_DEFLATED),
    "lzma": lambda: zip_of({"manifest.json": b"{}"}, zipfile.ZIP_LZMA),
    "twice": twice,
    "slip": with_member("../../etc/cron.d/x"),
    "absolute": with_member("/etc/passwd"),
    "backslash": with_member("chunks\\bench\\0000000000.json"),
    "other file": with_member("chunks/bench/0000000000.txt"),
    "capital stream": with_member("chunks/Bench/0000000000.zst"),
    "short seq": with_member("chunks/bench/0.zst"),
    "newline in name": with_member("chunks/bench/0000000000.zst\n"),
    "record without frame": lambda: zip_of({"manifest.json": b"{}", "chunks/bench/0000000000.json": RECORD_JSON}),
    "record of another chunk": lambda: zip_of(
        {
            "manifest.json": b"{}",
            "chunks/bench/0000000001.json": RECORD_JSON,
            "chunks/bench/0000000001.zst": b"x",
        }
    ),
    "record not JSON": lambda: zip_of(
        {"manifest.json": b"{}", "chunks/bench/0000000000.json": b"?", "chunks/bench/0000000000.zst": b"x"}
    ),
    "frame too large": lambda: zip_of(
        {
            "manifest.json": b"{}",
            "chunks/bench/0000000000.json": RECORD_JSON,
            "chunks/bench/0000000000.zst": bytes(100_000),
        }
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_zips_are_refused(name: str) -> None:
    with pytest.raises(WireError):
        list(unpack_emergency(io.BytesIO(HOSTILE[name]())).chunks)


def test_many_members_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = 50_000 * 70
    data = bytes(entries) + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 50_000, 50_000, entries, 0, 0)
    begin = time.perf_counter()
    with pytest.raises(EmergencyRefused, match="members"):
        unpack_emergency(io.BytesIO(data))
    assert time.perf_counter() - begin < 0.1
    monkeypatch.setattr(emergency, "MAX_EMERGENCY_BYTES", 1000)
    with pytest.raises(EmergencyRefused, match="at most"):
        unpack_emergency(io.BytesIO(packed()))


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_mangled_zips_raise_nothing_else(data: st.DataObject) -> None:
    mangled = bytearray(packed())
    for _ in range(data.draw(st.integers(1, 6))):
        # The directory at the end is where the structure is.
        back = data.draw(st.integers(1, 700))
        mangled[-back] = data.draw(st.integers(0, 255))
    try:
        opened = unpack_emergency(io.BytesIO(bytes(mangled)))
        json.dumps(opened.manifest)
        list(opened.chunks)
    except WireError:
        pass
