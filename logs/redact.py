"""Masks secrets in log bytes before they leave the machine. Stdlib only: the agent imports this.

Every rule has needles, plain text of which one must occur in a line before its expression is
tried there, so that ordinary output costs a few memory scans. All repeats are bounded: time is
linear whatever a program prints. Lines stay lines: no newline is added or removed. Best effort
by nature; secrets that are known are better passed in as literals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MASK = b"[redacted]"
MIN_LITERAL = 6  # shorter ones would eat ordinary text
MAX_HELD = 64 * 1024


@dataclass(frozen=True)
class _Rule:
    """`pattern` runs on the lower-cased line, which is far quicker than ignoring case; what its
    group 1 matched is masked.
    """

    needles: tuple[bytes, ...]
    pattern: re.Pattern[bytes]


_ASSIGNED = (
    rb"""["']?[ \t]{0,4}(?:=|:(?!:))[ \t]{0,4}"""
    rb"""("[^"\n]{1,512}"|'[^'\n]{1,512}'|[^\s"'&,;\x00]{4,4096})"""
)
_RULES = (
    # A header's value: at least one character that prose after the word "bearer" or "basic" has not.
    _Rule(
        (b"bearer ", b"basic "),
        re.compile(rb"\b(?:bearer|basic) {1,4}((?=[^\s]{0,64}[0-9+/=_.-])[a-z0-9._~+/=-]{8,4096})"),
    ),
    _Rule((b"akia", b"asia"), re.compile(rb"\b(a[ks]ia[a-z0-9]{16})\b")),
    _Rule(
        (b"x-amz-",),
        re.compile(rb"x-amz-(?:signature|credential|security-token)[=:] {0,4}([^\s&\"'<>]{1,4096})"),
    ),
    _Rule((b"://",), re.compile(rb"://[^\s/@:\"']{0,128}:([^\s/@\"']{1,512})@")),
    _Rule((b"ghp_", b"_pat_"), re.compile(rb"\b(gh(?:p|ithub_pat)_[a-z0-9_]{20,255})")),
    _Rule((b"hf_",), re.compile(rb"\b(hf_[a-z0-9]{30,64})\b")),
    _Rule((b"eyj",), re.compile(rb"\b(eyj[a-z0-9_-]{8,4096}\.[a-z0-9_-]{8,8192}\.[a-z0-9_-]{8,1024})")),
    # Not plain "key": half of what a prover prints is about proving and verification keys.
    _Rule(
        (b"_key", b"-key", b"ikey", b"skey"),
        re.compile(rb"(?:api[_-]?|access[_-]?|secret[_-]|private[_-])key" + _ASSIGNED),
    ),
    _Rule(
        (b"token", b"secret", b"passw", b"passphrase", b"credential"),
        re.compile(rb"(?:token|secret|secretkey|passwd|password|passphrase|credentials?)" + _ASSIGNED),
    ),
)
_BLOCK_NEEDLE = b"private key"
_BLOCK_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
_BLOCK_END = re.compile(rb"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----")


class Redactor:
    """Redacts one stream, as it comes. Not thread-safe.

    feed(data) -> whole lines, masked; an unfinished last line is held back
    flush()    -> what is held, masked (call it when held bytes get 2 s old, and at the end)

    A secret inside one line is found however the reads fall, a private key block over many
    lines too. What `flush` gives out early, or a line over 64 KiB, can cut a secret in two.
    """

    def __init__(self, literals: Iterable[str] = ()) -> None:
        self._literals = _usable(literals)
        self._held = bytearray()
        self._in_block = False

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes of the stream."""
        self._held += data
        end = self._held.rfind(b"\n") + 1
        if not end and len(self._held) > MAX_HELD:
            end = len(self._held)
        return self._take(end)

    def flush(self) -> bytes:
        """Gives out the unfinished line."""
        return self._take(len(self._held))

    def _take(self, end: int) -> bytes:
        if not end:
            return b""
        data = bytes(memoryview(self._held)[:end])
        del self._held[:end]
        masked, self._in_block = _redact(data, self._literals, self._in_block)
        return masked


def redact(data: bytes, literals: Iterable[str] = ()) -> bytes:
    """Masks what looks like a secret, and each of `literals` (of at least 6 characters)."""
    return _redact(data, _usable(literals), in_block=False)[0]


def _usable(literals: Iterable[str]) -> list[bytes]:
    encoded = {text.encode() for text in literals}
    # The longest first, so that one literal inside another leaves no rest.
    return sorted((text for text in encoded if len(text) >= MIN_LITERAL), key=lambda text: (-len(text), text))


def _redact(data: bytes, literals: list[bytes], in_block: bool) -> tuple[bytes, bool]:
    for literal in literals:
        data = data.replace(literal, MASK)
    lowered = data.lower()
    if in_block or _BLOCK_NEEDLE in lowered:
        data, in_block = _mask_blocks(data, in_block)
        lowered = data.lower()
    rules = [rule for rule in _RULES if any(needle in lowered for needle in rule.needles)]
    if rules:
        data = b"\n".join([_mask_line(line, rules) for line in data.split(b"\n")])
    return data, in_block


def _mask_line(line: bytes, rules: list[_Rule]) -> bytes:
    lowered = line.lower()
    for rule in rules:
        if not any(needle in lowered for needle in rule.needles):
            continue
        pieces = []
        at = 0
        for match in rule.pattern.finditer(lowered):
            pieces += [line[at : match.start(1)], MASK]
            at = match.end(1)
        if pieces:
            line = b"".join([*pieces, line[at:]])
            lowered = line.lower()
    return line


def _mask_blocks(data: bytes, in_block: bool) -> tuple[bytes, bool]:
    """Masks from BEGIN to END; True if the last block has not ended."""
    out: list[bytes] = []
    at = 0
    while at < len(data):
        if not in_block:
            begin = _BLOCK_BEGIN.search(data, at)
            if begin is None:
                out.append(data[at:])
                break
            out.append(data[at : begin.end()])
            at, in_block = begin.end(), True
        end = _BLOCK_END.search(data, at)
        secret = data[at : end.start() if end else len(data)]
        out.append(b"\n".join([MASK if line.strip() else line for line in secret.split(b"\n")]))
        if end is None:
            break
        out.append(end[0])
        at, in_block = end.end(), False
    return b"".join(out), in_block
