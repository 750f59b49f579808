"""Segments: consecutive chunks of a stream in one object, their frames one behind the other.

A stream of a day is 43,000 chunks. As objects of their own they are slow to read, to seal and to delete, and cost a
request each. In a segment a chunk is a range of bytes; its record, and with it the hash chain, stays as it was. A
segment's bytes are nothing but frames, so `zstd -d` of it gives the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from logs.wire import SEGMENT_BYTES, SEGMENT_CHUNKS, segment_key


@dataclass(frozen=True)
class Segment:
    """The chunks from `first_seq` on; `frame_bytes` are the lengths of their frames, in order.

    `mark` is a fresh random id: no two writings have one key, so that what nobody refers to can be deleted safely.
    """

    first_seq: int
    frame_bytes: tuple[int, ...]
    mark: str

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.frame_bytes) - 1

    @property
    def bytes(self) -> int:
        return sum(self.frame_bytes)

    def key(self, run: str, instance: str, stream: str) -> str:
        """Its object. Raises `WireError` for ids and names that are none."""
        return segment_key(run, instance, stream, self.first_seq, self.last_seq, self.mark)

    def stretch(self, first: int, last: int) -> tuple[int, list[int]]:
        """Where the frames of the chunks `first` to `last` lie: the offset of the first, and the length of each."""
        at = first - self.first_seq
        return sum(self.frame_bytes[:at]), list(self.frame_bytes[at : last - self.first_seq + 1])


class Segments:
    """The segments of one stream, by the chunks that they hold.

    `gone`: why chunks that no segment holds have no object of their own either; empty while they do.
    """

    def __init__(self, segments: Iterable[Segment] = (), gone: str = "") -> None:
        self.gone = gone
        self._segments = sorted(segments, key=lambda segment: segment.first_seq)
        self._firsts = [segment.first_seq for segment in self._segments]

    def of(self, seq: int) -> Segment | None:
        """The segment that holds chunk `seq`; None: it has an object of its own, or is gone."""
        at = bisect_right(self._firsts, seq) - 1
        found = self._segments[at] if at >= 0 else None
        return found if found is not None and seq <= found.last_seq else None

    def lacks(self, seq: int) -> bool:
        """True where chunk `seq` is gone on purpose."""
        return bool(self.gone) and self.of(seq) is None


NONE = Segments()
"""Every chunk has an object of its own."""


def split(frame: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Frames that lie one behind the other, apart again."""
    return [frame[begin:end] for begin, end in pairwise(accumulate(lengths, initial=0))]


def planned(frame_bytes: Iterable[tuple[int, int]], new_mark: Callable[[], str]) -> Iterator[Segment]:
    """Segments of chunks given as (number, length of the frame), in order: each as large as one may be, none over a
    number that is missing.
    """
    first, size = 0, 0
    lengths: list[int] = []
    for seq, length in frame_bytes:
        whole = len(lengths) == SEGMENT_CHUNKS or size + length > SEGMENT_BYTES
        if lengths and (whole or seq != first + len(lengths)):
            yield Segment(first, tuple(lengths), new_mark())
            lengths, size = [], 0
        if not lengths:
            first = seq
        lengths.append(length)
        size += length
    if lengths:
        yield Segment(first, tuple(lengths), new_mark())
