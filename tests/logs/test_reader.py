from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs.reader import SHOWN_BYTES, Line, StreamReader
from logs.store import Store
from logs.wire import ChunkRecord, chunk_key
from tests.logs.conftest import T0, cut_all

Archived = Callable[..., list[ChunkRecord]]


class Shelf:
    """Chunks in memory behind the one call of the store that the reader makes; counts them."""

    def __init__(self, chunks: list[tuple[ChunkRecord, bytes]]) -> None:
        self.frames = {chunk_key("r1", "i1", "bench", record.seq): frame for record, frame in chunks}
        self.gets = 0

    def get(self, key: str, max_bytes: int) -> bytes:
        self.gets += 1
        assert len(self.frames[key]) <= max_bytes
        return self.frames[key]


def shelved(feeds: list[bytes], drop: set[int] | None = None) -> tuple[StreamReader, Shelf, list[ChunkRecord]]:
    chunks = [chunk for chunk in cut_all("bench", feeds) if chunk[0].seq not in (drop or ())]
    shelf = Shelf(chunks)
    records = [record for record, _ in chunks]
    shelf_store: Any = shelf
    return StreamReader(shelf_store, "r1", "i1", "bench", records), shelf, records


def expected_lines(whole: bytes) -> list[bytes]:
    lines = whole.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def test_pages_from_the_real_store(store: Store, instance: str, archived: Archived) -> None:
    records = archived("bench", [b"line %d\n" % n for n in range(1, 3001)], step_ms=1)
    reader = StreamReader(store, "r1", instance, "bench", reversed(records))
    page = reader.lines(1204, 3)
    assert [(line.number, line.text) for line in page] == [(n, f"line {n}") for n in (1204, 1205, 1206)]
    assert all(T0 <= line.t_ms <= T0 + 3000 for line in page)
    assert [line.number for line in reader.last(2)] == [2999, 3000]
    assert b"".join(reader.raw()) == b"".join(b"line %d\n" % n for n in range(1, 3001))
    assert reader.ended_lines == 3000


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.one_of(
            st.sampled_from([b"\n", b"", b"\n\n\n", b"x" * 70_000, b"end\n", b"\xff\xfe\n", b"y" * 9000 + b"\n"]),
            st.text("ab\nä", max_size=50).map(str.encode),
        ),
        max_size=15,
    ),
    st.integers(1, 40),
    st.integers(1, 40),
)
def test_any_page_is_exact(feeds: list[bytes], first: int, count: int) -> None:
    whole = b"".join(feeds)
    lines = expected_lines(whole)
    reader, _, _ = shelved(feeds)
    page = reader.lines(first, count)
    wanted = lines[first - 1 : first - 1 + count]
    assert [line.number for line in page] == list(range(first, first + len(wanted)))
    for line, raw in zip(page, wanted, strict=True):
        assert line.length == len(raw)
        assert line.truncated == (len(raw) > SHOWN_BYTES)
        if not line.truncated:
            assert line.text == raw.decode("utf-8", "replace")
    assert [line.number for line in reader.last(count)] == list(range(1, len(lines) + 1))[-count:]
    assert b"".join(reader.raw()) == whole


def test_reads_only_what_a_page_needs() -> None:
    reader, shelf, records = shelved([b"".join(b"%060d\n" % n for n in range(100_000))])
    assert len(records) > 90
    reader.lines(50_000, 100)
    assert shelf.gets <= 3
    reader.last(100)
    assert shelf.gets <= 6


def test_ten_megabyte_line_is_cut_for_display_and_skipped_in_the_store() -> None:
    line = random.Random(5).randbytes(10_000_000).replace(b"\n", b" ")
    reader, shelf, _ = shelved([b"before\n", line, b"\nafter\n"])
    page = reader.lines(1, 3)
    assert [(item.number, item.length, item.truncated) for item in page] == [
        (1, 6, False),
        (2, 10_000_000, True),
        (3, 5, False),
    ]
    assert len(page[1].text) <= SHOWN_BYTES
    assert shelf.gets < 10
    shelf.gets = 0
    assert [item.text for item in reader.lines(3, 1)] == ["after"]
    assert shelf.gets < 5


def test_cut_inside_a_character_shows_no_half_of_it() -> None:
    reader, _, _ = shelved([("ä" * 5000 + "\nx" + "ä" * 5000 + "\n").encode()])
    texts = [line.text for line in reader.lines(1, 2)]
    assert texts == ["ä" * 4096, "x" + "ä" * 4095]


def test_control_characters_come_as_they_were_written() -> None:
    nasty = b"\x00\x07\x1b[31mred\x1b[0m\x7f \xc2\x9b31m \xe2\x80\xae \xe2\x80\xa8 <script>\t\xff\r\n"
    reader, _, _ = shelved([nasty])
    (line,) = reader.lines(1, 1)
    assert line.text == "\x00\x07\x1b[31mred\x1b[0m\x7f \x9b31m \u202e \u2028 <script>\t\ufffd"
    assert line.length == len(nasty) - 1


NUMBERED = [b"%05d\n" % n for n in range(1, 5001)]  # six bytes a line; 10,922 lines would fill a chunk


def test_what_a_machine_did_not_mask_is_masked_when_it_is_shown() -> None:
    key = b"-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----\n"
    reader, _, _ = shelved([b"one\npassword=hunter22 \xff\n", key, b"\x1b[31mlast\n"])
    assert [line.text for line in reader.lines(1, 9)] == [
        "one",
        "password=[redacted] \ufffd",
        "-----BEGIN RSA PRIVATE KEY-----",
        "[redacted]",
        "-----END RSA PRIVATE KEY-----",
        "\u241b[31mlast",
    ]
    assert [line.number for line in reader.lines(1, 9)] == [1, 2, 3, 4, 5, 6]
    assert reader.lines(100, 5) == []


def chunked_lines() -> list[ChunkRecord]:
    return [record for record, _ in cut_all("bench", NUMBERED, step_ms=20)]


def test_missing_chunks_are_marked() -> None:
    everything = chunked_lines()
    assert len(everything) > 40
    lost = everything[10]
    chunks = [chunk for chunk in cut_all("bench", NUMBERED, step_ms=20) if chunk[0].seq != 10]
    shelf: Any = Shelf(chunks)
    reader = StreamReader(shelf, "r1", "i1", "bench", [record for record, _ in chunks])
    first, after = lost.first_line, lost.next_line
    page = reader.lines(first - 2, lost.lines + 4)
    assert [line.number for line in page] == [first - 2, first - 1, first, after, after + 1]
    mark = page[2]
    assert mark.gap
    assert mark.text == f"lines {first}-{after - 1} missing"
    assert page[3].text == f"{after:05d}"
    assert not any(line.gap for line in reader.lines(after, 10))
    assert reader.lines(first + 1, 2) == [mark]
    assert not any(line.gap for line in reader.lines(first - 3, 3))


def test_missing_head() -> None:
    reader, _, records = shelved([b"x" * 70_000 + b"\n", b"tail\n"], drop={0})
    page = reader.lines(1, 10)
    assert page[0] == Line(1, "part of line 1 missing", records[0].t_first_ms, gap=True)
    assert page[1].length == 70_000 - 65_536
    assert page[-1].text == "tail"


def test_lost_and_altered_objects_are_marked(store: Store, instance: str, archived: Archived) -> None:
    records = archived("bench", NUMBERED, step_ms=20)
    lost, altered = records[3], records[6]
    store.delete(chunk_key("r1", instance, "bench", lost.seq))
    key = chunk_key("r1", instance, "bench", altered.seq)
    store.put(key, store.get(key, 100_000)[:-1])
    reader = StreamReader(store, "r1", instance, "bench", records)
    page = reader.lines(1, 5000)
    marks = [line for line in page if line.gap]
    assert [mark.number for mark in marks] == [lost.first_line, altered.first_line]
    assert "lost from the store" in marks[0].text
    assert "damaged" in marks[1].text
    assert len(page) == 5000 - lost.lines - altered.lines + 2
    raw = b"".join(reader.raw())
    assert len(raw) == 30_000 - lost.raw_bytes - altered.raw_bytes


@pytest.mark.parametrize(("first", "count"), [(1, 0), (1, -5), (-10, 0), (9999, 10), (0, 0)])
def test_odd_pages(first: int, count: int) -> None:
    reader, _, _ = shelved([b"only\n"])
    assert reader.lines(first, count) == []
    empty, _, _ = shelved([])
    assert empty.lines(first, count) == []
    assert empty.last(5) == []
    assert empty.ended_lines == 0


def test_last_shows_an_unfinished_line() -> None:
    reader, _, _ = shelved([b"a\nb\nc"])
    assert [line.text for line in reader.last(2)] == ["b", "c"]
    assert [line.text for line in reader.last(99)] == ["a", "b", "c"]
    assert reader.last(0) == []
    assert reader.ended_lines == 2


NUMBERED_FEEDS = [b"".join(NUMBERED[at : at + 100]) for at in range(0, 5000, 100)]


@settings(deadline=None, max_examples=100)
@given(st.sets(st.integers(0, 12)), st.integers(1, 5000), st.integers(1, 400))
def test_gaps_never_shift_a_line(drop: set[int], first: int, count: int) -> None:
    reader, _, records = shelved(NUMBERED_FEEDS, drop)
    held = {n for record in records for n in range(record.first_line, record.next_line)}
    page = reader.lines(first, count)
    assert [line.number for line in page if not line.gap] == sorted(held & set(range(first, first + count)))
    assert all(line.text == f"{line.number:05d}" for line in page if not line.gap)
    assert len({line.number for line in page if line.gap}) == sum(line.gap for line in page)
