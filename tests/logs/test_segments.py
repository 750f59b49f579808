"""Chunks in segments read the same as chunks in objects of their own."""

from __future__ import annotations

import random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from logs.errors import NoSuchObject, OutOfRange
from logs.frames import read_chunk, read_chunks
from logs.reader import StreamReader
from logs.segments import Segment, Segments, planned, split
from logs.store import Store
from logs.wire import SEGMENT_BYTES, SEGMENT_CHUNKS, ChunkRecord, chunk_key
from tests.logs.conftest import cut_all

LINES = [b"%05d %s\n" % (n, b"x" * (n % 90)) for n in range(1, 6001)]


def put_segments(
    store: Store, instance: str, feeds: list[bytes], spans: list[tuple[int, int]]
) -> tuple[list[ChunkRecord], list[Segment]]:
    """The chunks of a stream `bench`, those of `spans` in segments, the others by themselves."""
    chunks = cut_all("bench", feeds, 40)
    segments = [
        Segment(first, tuple(len(frame) for _, frame in chunks[first : last + 1]), "m1") for first, last in spans
    ]
    for segment in segments:
        frames = b"".join(frame for _, frame in chunks[segment.first_seq : segment.last_seq + 1])
        store.put_once(segment.key("r1", instance, "bench"), frames)
    held = Segments(segments)
    for record, frame in chunks:
        if held.of(record.seq) is None:
            store.put_once(chunk_key("r1", instance, "bench", record.seq), frame)
    return [record for record, _ in chunks], segments


def test_a_page_and_a_download_are_the_same_from_segments(store: Store, instance: str) -> None:
    records, segments = put_segments(store, instance, LINES, [(0, 20), (21, 40), (45, 90)])
    assert len(records) > 100
    reader = StreamReader(store, "r1", instance, "bench", records, Segments(segments))
    assert b"".join(reader.raw()) == b"".join(LINES)
    rng = random.Random(1)
    for first in (1, 5999, *rng.sample(range(1, 6000), 12)):
        page = reader.lines(first, 30)
        assert [line.text.encode() + b"\n" for line in page] == LINES[first - 1 : first + 29]


def test_a_segment_is_readable_without_us(store: Store, instance: str) -> None:
    _, (segment,) = put_segments(store, instance, LINES[:900], [(0, 9)])
    data = store.get(segment.key("r1", instance, "bench"), SEGMENT_BYTES)
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        assert b"".join(LINES).startswith(reader.read())


def test_what_a_segment_lost_is_told_by_chunk(store: Store, instance: str) -> None:
    records, segments = put_segments(store, instance, LINES, [(0, 20), (21, 40), (41, 60), (61, 80)])
    lost, short, altered = (segment.key("r1", instance, "bench") for segment in segments[:3])
    store.delete(lost)
    store.put(short, store.get(short, SEGMENT_BYTES)[:-1])
    data = bytearray(store.get(altered, SEGMENT_BYTES))
    data[segments[2].frame_bytes[0] + 5] ^= 1
    store.put(altered, bytes(data))
    held = Segments(segments)
    chunks = list(read_chunks(store, "r1", instance, "bench", records[:81], held))
    assert [chunk.record.seq for chunk in chunks] == list(range(81))
    assert all("lost from the store" in chunk.damage for chunk in chunks[:21])
    assert "damaged" in read_chunk(store, "r1", instance, "bench", records[40], held).damage
    assert not read_chunk(store, "r1", instance, "bench", records[39], held).damage
    assert [chunk.record.seq for chunk in chunks[41:61] if chunk.damage] == [42]
    assert not any(chunk.damage for chunk in chunks[61:])


def test_exact_stretches(store: Store, instance: str) -> None:
    store.put(f"{instance}/x", b"0123456789")
    assert store.get_stretch(f"{instance}/x", 2, 3) == b"234"
    assert store.get_stretch(f"{instance}/x", 0, 10) == b"0123456789"
    for start, length in ((8, 3), (10, 1), (99, 5)):
        with pytest.raises(OutOfRange):
            store.get_stretch(f"{instance}/x", start, length)
    with pytest.raises(NoSuchObject):
        store.get_stretch(f"{instance}/none", 0, 1)


@given(st.lists(st.integers(1, 400_000), max_size=700), st.sets(st.integers(0, 700), max_size=4))
def test_plans_hold_everything_and_nothing_twice(lengths: list[int], missing: set[int]) -> None:
    chunks = [(seq, length) for seq, length in enumerate(lengths) if seq not in missing]
    plan = list(planned(chunks, lambda: "m"))
    told = [(s.first_seq + i, length) for s in plan for i, length in enumerate(s.frame_bytes)]
    assert told == chunks
    assert all(len(s.frame_bytes) <= SEGMENT_CHUNKS and s.bytes <= SEGMENT_BYTES for s in plan)
    held = Segments(plan)
    assert all(held.of(seq) is not None for seq, _ in chunks)
    assert all(held.of(seq) is None for seq in missing)


def test_split_undoes_joining() -> None:
    frames = [b"a", b"", b"bcd"]
    assert split(b"".join(frames), [1, 0, 3]) == frames
