from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.batch import pack_batch, unpack_batch
from logs.wire import MAX_BATCH_BYTES, MAX_BATCH_CHUNKS, WireError
from tests.logs.conftest import cut_all

CHUNKS = cut_all("bench", [b"%d\n" % n * n for n in range(1, 40)], step_ms=2000)


def test_what_is_packed_comes_out_again() -> None:
    assert len(CHUNKS) > 15
    assert unpack_batch(pack_batch(CHUNKS)) == CHUNKS
    assert unpack_batch(pack_batch(CHUNKS[:1])) == CHUNKS[:1]
    assert len(pack_batch(CHUNKS)) < MAX_BATCH_BYTES


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "at least one"),
        (b"{}", "a line each"),
        (b"x" * 5000 + b"\n1\na", "a line each"),
        (b"{}\n1\na", "exactly 8 fields"),
        (b"{}\n5\na", "cut off"),
        (b"{}\n-1\na", "no number"),
        (b"{}\n99999\na", "no number"),
        (b"{}\n999999999\na", "a line each"),
        (pack_batch(CHUNKS[:2])[:-1], "cut off"),
        (pack_batch(CHUNKS[:2]) + b"\n", "a line each"),
        (pack_batch([CHUNKS[0]] * (MAX_BATCH_CHUNKS + 1)), "at most 64"),
    ],
)
def test_what_is_no_batch(body: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says):
        unpack_batch(body)


@given(st.data())
def test_mangled_batches_never_raise_anything_else(data: st.DataObject) -> None:
    body = bytearray(pack_batch(CHUNKS[:5]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    try:
        unpack_batch(bytes(body))
    except WireError:
        pass
