from __future__ import annotations

import dataclasses
import hashlib
import random
import time

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from logs.chunks import ChunkCutter, ChunkRefused, check_successor, open_frame
from logs.wire import CHUNK_RAW_BYTES, GENESIS, MAX_FRAME_BYTES, ChunkRecord, chain_hash
from tests.logs.conftest import T0, cut_all


def rebuilt(chunks: list[tuple[ChunkRecord, bytes]]) -> bytes:
    """Opens and checks every chunk, as the controller does."""
    previous = None
    raw = []
    for record, frame in chunks:
        assert len(frame) <= MAX_FRAME_BYTES
        raw.append(open_frame(frame, record))
        check_successor(previous, record)
        previous = record
    return b"".join(raw)


feeds = st.lists(
    st.one_of(
        st.binary(max_size=300),
        st.text(max_size=100).map(str.encode),
        st.sampled_from([b"", b"\n", b"\n" * 50, b"\xff\xfe", b"line\n", b"\xe2\x82", b"\0" * 70_000, b"x" * 66_000]),
        st.integers(0, 2**32).map(lambda seed: random.Random(seed).randbytes(100_000)),
    ),
    max_size=20,
)


@settings(deadline=None, max_examples=120)
@given(feeds, st.integers(0, 3000))
def test_any_feed_comes_back_whole(data: list[bytes], step_ms: int) -> None:
    chunks = cut_all("bench", data, step_ms)
    whole = b"".join(data)
    assert rebuilt(chunks) == whole
    assert sum(record.lines for record, _ in chunks) == whole.count(b"\n")
    at = 0
    for record, _ in chunks:
        assert record.first_line == 1 + whole[:at].count(b"\n")
        at += record.raw_bytes


@settings(deadline=None, max_examples=50)
@given(feeds, st.data())
def test_resumed_cutter_continues_the_chain(data: list[bytes], draw: st.DataObject) -> None:
    first = cut_all("bench", data)
    if not first:
        return
    kept = draw.draw(st.integers(1, len(first)))
    cutter = ChunkCutter.resume("bench", first[kept - 1][0])
    cutter.feed(b"after the restart\n", T0)
    rebuilt([*first[:kept], cutter.cut(T0)])


def test_ten_megabyte_line() -> None:
    line = random.Random(1).randbytes(10_000_000).replace(b"\n", b" ")
    chunks = cut_all("bench", [b"before\n", line, b"\nafter"])
    assert rebuilt(chunks) == b"before\n" + line + b"\nafter"
    inside = [record for record, _ in chunks if record.lines == 0]
    assert len(inside) > 150
    assert {record.first_line for record in inside} <= {2, 3}


def test_prefers_to_cut_after_a_newline() -> None:
    line = b"x" * 99 + b"\n"
    chunks = cut_all("bench", [line * 2000])
    assert all(record.raw_bytes % 100 == 0 for record, _ in chunks)
    assert all(record.raw_bytes > CHUNK_RAW_BYTES - 100 for record, _ in chunks[:-1])


def test_due_by_size_and_by_time() -> None:
    cutter = ChunkCutter("bench")
    assert not cutter.due(T0)
    assert cutter.cut(T0) is None
    cutter.feed(b"", T0)
    assert not cutter.due(T0 + 10_000)
    cutter.feed(b"a", T0)
    assert not cutter.due(T0 + 1999)
    assert cutter.due(T0 + 2000)
    assert cutter.due(T0 - 1), "a clock set back must not hold bytes for long"
    cutter.feed(b"b" * CHUNK_RAW_BYTES, T0 + 1)
    assert cutter.due(T0 + 1)
    assert cutter.buffered == CHUNK_RAW_BYTES + 1


def test_times_are_those_of_the_bytes() -> None:
    cutter = ChunkCutter("bench")
    cutter.feed(b"a" * CHUNK_RAW_BYTES, T0)
    cutter.feed(b"b", T0 + 700)
    first, _ = cutter.cut(T0 + 800)
    second, _ = cutter.cut(T0 + 900)
    assert (first.t_first_ms, first.t_last_ms) == (T0, T0 + 800)
    assert (second.t_first_ms, second.t_last_ms) == (T0 + 700, T0 + 900)
    cutter.feed(b"c", T0)
    third, _ = cutter.cut(T0 - 5000)
    assert third.t_last_ms == third.t_first_ms == T0


def good() -> tuple[ChunkRecord, bytes]:
    return cut_all("bench", [b"hello\nworld\n" * 100])[0]


def refused(frame: bytes, record: ChunkRecord) -> bool:
    try:
        open_frame(frame, record)
    except ChunkRefused:
        return True
    return False


def test_hostile_frames_are_refused() -> None:
    record, frame = good()
    raw = open_frame(frame, record)
    compress = zstandard.ZstdCompressor().compress
    bomb = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(500_000_000))
    assert len(bomb) < MAX_FRAME_BYTES
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(raw)
    lying = bytearray(bomb)
    at = bomb.index((500_000_000).to_bytes(4, "little"))
    lying[at : at + 4] = len(raw).to_bytes(4, "little")
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    dictionary = zstandard.ZstdCompressionDict(b"hello world" * 100)
    cases = {
        "empty": b"",
        "not zstd": raw,
        "truncated": frame[:-1],
        "header only": frame[:6],
        "trailing bytes": frame + b"\0",
        "two frames": frame + frame,
        "two halves": compress(raw[:600]) + compress(raw[600:]),
        "skippable before": skippable + frame,
        "skippable after": frame + skippable,
        "bomb": bomb,
        "bomb with a small size in its header": bytes(lying),
        "no size in the header": unsized,
        "other content": compress(raw[:-1] + b"x"),
        "longer content": compress(raw + b"x"),
        "dictionary": zstandard.ZstdCompressor(dict_data=dictionary).compress(raw),
        "too long": frame + bytes(MAX_FRAME_BYTES),
        "flipped": frame[:20] + bytes([frame[20] ^ 1]) + frame[21:],
    }
    begin = time.perf_counter()
    assert [name for name, hostile in cases.items() if not refused(hostile, record)] == []
    assert time.perf_counter() - begin < 1, "none may be decompressed at length"


def test_false_records_are_refused() -> None:
    record, frame = good()
    for change in (
        {"raw_sha256": "0" * 64},
        {"raw_bytes": record.raw_bytes - 1, "lines": 5},
        {"raw_bytes": record.raw_bytes + 1},
        {"lines": record.lines - 1},
    ):
        with pytest.raises(ChunkRefused):
            open_frame(frame, dataclasses.replace(record, **change))


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 60), st.integers(0, 255))
def test_mangled_frames_never_do_anything_else(junk: bytes, at: int, flip: int) -> None:
    record, frame = good()
    for hostile in (junk, b"\x28\xb5\x2f\xfd" + junk, frame[:at] + bytes([flip]) + frame[at + 1 :]):
        try:
            raw = open_frame(hostile, record)
        except ChunkRefused:
            continue
        assert hashlib.sha256(raw).hexdigest() == record.raw_sha256


def test_successors() -> None:
    chunks = [record for record, _ in cut_all("bench", [b"some line\n" * 20_000])]
    check_successor(None, chunks[0])
    check_successor(chunks[0], chunks[1])
    assert chunks[0].prev_sha256 == GENESIS
    assert chunks[1].prev_sha256 == chain_hash(chunks[0])
    for previous, record in (
        (None, chunks[1]),
        (chunks[0], chunks[2]),
        (chunks[0], chunks[0]),
        (chunks[1], chunks[0]),
        (chunks[0], dataclasses.replace(chunks[1], prev_sha256=GENESIS)),
        (chunks[0], dataclasses.replace(chunks[1], first_line=chunks[1].first_line + 1)),
        (dataclasses.replace(chunks[0], raw_sha256="1" * 64), chunks[1]),
        (dataclasses.replace(chunks[0], t_first_ms=1), chunks[1]),
    ):
        with pytest.raises(ChunkRefused):
            check_successor(previous, record)
