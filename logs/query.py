"""What a search asks of a line: words that must all be in it, or an expression. Case does not matter.

Expressions are RE2's, which is linear in the line whatever is asked (https://github.com/google/re2/wiki/Syntax).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import re2

MAX_TEXT = 300
MAX_WORDS = 20
_WORD = re.compile(r'"([^"]+)"|(\S+)')
_META = set("\\.^$*+?{}[]|()")


class BadQuery(ValueError):
    """What was asked can't be searched for; the text says why and what to do."""


@dataclass(frozen=True)
class Query:
    """`literals`: texts that every matching line holds, in lower case; an index can rule out by them what lacks one."""

    literals: tuple[bytes, ...]
    expression: Any = None

    def matches(self, line: bytes) -> bool:
        """`line`: bytes as they are in the archive."""
        lowered = line.lower()
        if not all(literal in lowered for literal in self.literals):
            return False
        return self.expression is None or self.expression.search(line) is not None


def parse(text: str, *, regex: bool = False) -> Query:
    """A query from what a person typed: words and "quoted phrases", or one expression. Raises `BadQuery`."""
    text = text.strip()
    if not text:
        raise BadQuery("type what to look for")
    if len(text) > MAX_TEXT:
        raise BadQuery(f"at most {MAX_TEXT} characters can be searched for; shorten it")
    if regex:
        return Query(_required(text), _compiled(text))
    words = [phrase or word for phrase, word in _WORD.findall(text)]
    if len(words) > MAX_WORDS:
        raise BadQuery(f'at most {MAX_WORDS} words can be searched for; put a phrase into "quotes"')
    return Query(tuple(word.encode().lower() for word in words))


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.max_mem = 16 << 20
    options.encoding = re2.Options.Encoding.LATIN1  # lines are bytes, not always UTF-8
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        said = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error.args[0])
        raise BadQuery(f"not an expression: {said}; search for the words without “regex” instead") from error


def _required(pattern: str) -> tuple[bytes, ...]:
    """Runs of at least three plain characters that any match must hold; () where that is not plain to see."""
    runs, run, at = [], "", 0
    if pattern.startswith("(?") or "|" in pattern:
        return ()
    while at < len(pattern):
        char = pattern[at]
        if char not in _META:
            run += char
            at += 1
            continue
        if char == "\\" and at + 1 < len(pattern) and not pattern[at + 1].isalnum():
            run += pattern[at + 1]
            at += 2
            continue
        if char in "*?{":
            run = run[:-1]  # what stands before may be absent
        runs.append(run)
        run = ""
        at = _after(pattern, at)
    return tuple(r.encode().lower() for r in [*runs, run] if len(r) >= 3 and r.isascii())


def _after(pattern: str, at: int) -> int:
    """Past a group, a class, a count or one character that is no plain text."""
    char = pattern[at]
    if char == "\\":
        return at + 2
    closing = {"(": ")", "[": "]", "{": "}"}.get(char)
    if closing is None:
        return at + 1
    depth, i = 0, at
    while i < len(pattern):
        if pattern[i] == "\\":
            i += 1
        elif pattern[i] == char:
            depth += 1
        elif pattern[i] == closing:
            depth -= 1
            if depth == 0:
                # What follows a group may repeat or drop it; the group itself is passed over either way.
                return i + 1
        i += 1
    return len(pattern)
