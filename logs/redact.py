"""Masks secrets in log bytes before they leave the machine, and again when they are shown. Stdlib only: the agent
imports this.

What secrets look like is data (`logs.secret_shapes`). Lines stay lines: no newline is added or removed, and masking
what is masked changes nothing. Best effort by nature; secrets that are known are better passed in as literals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

from logs.secret_shapes import (
    BLOCK_BEGIN,
    BLOCK_END,
    BLOCK_NEEDLE,
    GATES,
    LAST_WORD,
    LONG_GATES,
    LONG_WORD,
    OPENING,
    PLAIN_BEGINS,
    SHAPES,
    Shape,
)

MASK = b"[redacted]"
MIN_LITERAL = 6  # shorter ones would eat ordinary text
MAX_HELD = 64 * 1024
KEPT_BACK = 8 * 1024  # of an endless line: a secret that has begun is seen whole before it is given out
_CONTEXT = 4 * 1024
_OPENING_WINDOW = 256

Spans = list[tuple[int, int]]


class Redactor:
    """Redacts one source of bytes, as they come. Not thread-safe.

    feed(data) -> whole lines, masked; an unfinished last line is held back
    release()  -> what is held, early (call it when held bytes get old), unless its end may be the beginning of a secret
    flush()    -> all that is held (call it at the end)

    A secret inside one line is found however the reads fall, a private key block over many lines too. Of a line that
    was released in its middle, the part given out still counts as what stands before the rest.
    """

    def __init__(self, literals: Iterable[str] = ()) -> None:
        self._literals = _usable(literals)
        self._held = bytearray()
        self._context = b""
        self._in_block = False

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes of the stream."""
        self._held += data
        end = self._held.rfind(b"\n") + 1
        if not end and len(self._held) > MAX_HELD:
            return self._take(len(self._held) - KEPT_BACK, len(self._held))
        return self._take(end, end)

    def also(self, literal: str) -> None:
        """A secret that is known only now."""
        self._literals = _longest_first({*self._literals, *_usable([literal])})

    def release(self) -> bytes:
        """Gives out the unfinished line, if that is safe."""
        if self._in_block or self._opens_secret():
            return b""
        return self.flush()

    def flush(self) -> bytes:
        """Gives out the unfinished line."""
        return self._take(len(self._held), len(self._held))

    def _opens_secret(self) -> bool:
        tail = (self._context + bytes(self._held[-_OPENING_WINDOW:]))[-_OPENING_WINDOW:]
        lowered = tail.lower()
        word = LAST_WORD.search(lowered)
        if OPENING.search(lowered) or (word and any(gate in word[0] for gate in LONG_GATES)):
            return True
        return any(tail.endswith(literal[:n]) for literal in self._literals for n in range(3, len(literal)))

    def _take(self, end: int, seen: int) -> bytes:
        """The first `end` held bytes, masked by what the first `seen` of them show."""
        if not end:
            return b""
        before = len(self._context)
        data = self._context + bytes(memoryview(self._held)[:seen])
        given = before + end
        del self._held[:end]
        spans, self._in_block = _spans(data, self._literals, self._in_block)
        masked = _masked(data, spans, before, given)
        self._context = b"" if self._in_block else data[data.rfind(b"\n", 0, given) + 1 : given][-_CONTEXT:]
        return masked


def redact(data: bytes, literals: Iterable[str] = ()) -> bytes:
    """Masks what looks like a secret, and each of `literals` (of at least 6 characters)."""
    return _masked(data, _spans(data, _usable(literals), in_block=False)[0], 0, len(data))


def _usable(literals: Iterable[str]) -> list[bytes]:
    """As they are, and as they stand in a URL and in JSON."""
    forms = {form for text in literals for form in (text, quote(text, safe=""), json.dumps(text)[1:-1])}
    encoded = {form.encode("utf-8", "surrogateescape") for form in forms}
    return _longest_first(text for text in encoded if len(text) >= MIN_LITERAL)


def _longest_first(literals: Iterable[bytes]) -> list[bytes]:
    return sorted(literals, key=lambda text: (-len(text), text))


def _spans(data: bytes, literals: list[bytes], in_block: bool) -> tuple[Spans, bool]:
    """Where `data` holds secrets, in any order and overlapping; True if its last private key block has not ended."""
    spans: Spans = []
    for literal in literals:
        at = data.find(literal)
        while at >= 0:
            spans.append((at, at + len(literal)))
            at = data.find(literal, at + len(literal))
    lowered = data.lower()
    if in_block or BLOCK_NEEDLE in lowered:
        in_block = _blocks(data, in_block, spans)
    for shape in _possible(lowered):
        for start, end in _lines_with(lowered, shape.needles or shape.gates):
            for match in shape.pattern.finditer(lowered, start, end):
                spans.append(match.span(match.lastindex or 1))
    return spans, in_block


def _possible(lowered: bytes) -> list[Shape]:
    """The shapes that lines of `lowered` may hold."""
    found = {gate for gate in GATES if gate in lowered}
    words = b" ".join(
        [
            word
            for word in lowered.split()
            if len(word) >= LONG_WORD and (not word.isalnum() or word[:2] in PLAIN_BEGINS)
        ]
    )
    found |= {gate for gate in LONG_GATES if gate in words}
    return [shape for shape in SHAPES if not found.isdisjoint(shape.gates)]


def _lines_with(data: bytes, needles: tuple[bytes, ...]) -> list[tuple[int, int]]:
    """Where the lines are that hold one of `needles`."""
    lines: set[tuple[int, int]] = set()
    for needle in needles:
        at = data.find(needle)
        while at >= 0:
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            lines.add((data.rfind(b"\n", 0, at) + 1, end))
            at = data.find(needle, end)
    return sorted(lines)


def _masked(data: bytes, spans: Spans, start: int, end: int) -> bytes:
    """`data` from `start` to `end`, each run of secrets as one mask."""
    if not spans:
        return data[start:end]
    pieces, at = [], start
    until = -1  # of the mask that was written last
    for first, last in sorted(spans):
        if last <= start or first >= end:
            continue
        if first > until:
            pieces += [data[at : max(first, start)], MASK]
        until = max(until, last)
        at = min(until, end)
    pieces.append(data[at:end])
    return b"".join(pieces)


def _blocks(data: bytes, in_block: bool, spans: Spans) -> bool:
    """The lines from BEGIN to END; True if the last block has not ended."""
    at = 0
    while at < len(data):
        if not in_block:
            begin = BLOCK_BEGIN.search(data, at)
            if begin is None:
                return False
            at, in_block = begin.end(), True
        end = BLOCK_END.search(data, at)
        stop = end.start() if end else len(data)
        spans += [
            (line.start(), line.end()) for line in re.compile(rb"[^\n]+").finditer(data, at, stop) if line[0].strip()
        ]
        if end is None:
            return True
        at, in_block = end.end(), False
    return in_block
