"""What a search asks of a line: words that must all be in it, or an expression. Case does not matter.

Expressions are RE2's, which is linear in the line whatever is asked (https://github.com/google/re2/wiki/Syntax).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import re2

MAX_TEXT = 300
MAX_WORDS = 20
_WORD = re.compile(r'"([^"]+)"|(\S+)')
_FLAGS = re.compile(r"\(\?[a-zA-Z-]*[sm]")
_META = set("\\.^$*+?{}[]|()")
_PLAIN_ESCAPES = set("dDwWsSbBnrtfva")  # two characters each; others (\x41, \pL, \101, \Q...) take what follows too
_ENDS_OF_TEXT = re.compile(r"(?<!\\)(?:\\\\)*\\[Az]")


class BadQuery(ValueError):
    """What was asked can't be searched for; the text says why and what to do."""


@dataclass(frozen=True)
class Query:
    """`branches`: texts, in lower case, all of one branch of which every matching line holds; an index can rule out by
    them what holds no branch whole. Empty: nothing can be ruled out.

    `expression`: what a line must match besides (for words, the first of them).
    """

    branches: tuple[tuple[bytes, ...], ...]
    expression: Any
    words: tuple[bytes, ...] = ()

    def matches(self, line: bytes) -> bool:
        """`line`: bytes as they are in the archive, without a newline."""
        if self.expression.search(line) is None:
            return False
        lowered = line.lower() if len(self.words) > 1 else b""
        return all(word in lowered for word in self.words[1:])

    def lines(self, data: bytes) -> Iterator[tuple[int, int]]:
        """(begin, end) of each line of `data` that matches, in order.

        Looks through the whole at once, and at single lines only where it found something: a match may run over the end
        of its line, where the line by itself has none.
        """
        at = 0
        while at < len(data):
            found = self.expression.search(data, at)
            if found is None:
                return
            begin = data.rfind(b"\n", at, found.start()) + 1 or at
            end = data.find(b"\n", found.start())
            end = len(data) if end < 0 else end
            if self.matches(data[begin:end]):
                yield begin, end
            at = end + 1


def parse(text: str, *, regex: bool = False) -> Query:
    """A query from what a person typed: words and "quoted phrases", or one expression. Raises `BadQuery`."""
    text = text.strip()
    if not text:
        raise BadQuery("type what to look for")
    if len(text) > MAX_TEXT:
        raise BadQuery(f"at most {MAX_TEXT} characters can be searched for; shorten it")
    if regex and _ENDS_OF_TEXT.search(text):
        raise BadQuery(r"lines are looked at one by one; write ^ and $ for \A and \z")
    if regex:
        if _FLAGS.search(text):
            raise BadQuery("the flags s and m are not taken: lines are looked at one by one")
        branches = tuple(_required(branch) for branch in _alternatives(text))
        return Query(branches if all(branches) else (), _compiled(text))
    words = tuple((phrase or word).encode().lower() for phrase, word in _WORD.findall(text))
    if len(words) > MAX_WORDS:
        raise BadQuery(f'at most {MAX_WORDS} words can be searched for; put a phrase into "quotes"')
    words = tuple(sorted(words, key=len, reverse=True))  # the longest is the rarest, as a rule
    return Query((words,), _compiled(re2.escape(words[0].decode())), words)


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.max_mem = 16 << 20
    options.encoding = re2.Options.Encoding.LATIN1  # lines are bytes, not always UTF-8
    try:
        return re2.compile(b"(?m)" + pattern.encode(), options)
    except re2.error as error:
        said = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error.args[0])
        raise BadQuery(f"not an expression: {said}; search for the words without “regex” instead") from error


def _alternatives(pattern: str) -> list[str]:
    """What stands between the bars outside of groups and classes."""
    parts, begin, at = [], 0, 0
    while at < len(pattern):
        if pattern[at] == "|":
            parts.append(pattern[begin:at])
            begin = at + 1
        at = _after(pattern, at) if pattern[at] in "\\([{" else at + 1
    return [*parts, pattern[begin:]]


def _required(pattern: str) -> tuple[bytes, ...]:
    """Runs of at least three plain characters that any match must hold; () where that is not plain to see."""
    runs, run, at = [], "", 0
    if pattern.startswith("(?"):
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
        if char == "\\" and pattern[at + 1 : at + 2] not in _PLAIN_ESCAPES:
            return ()
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
    if char == "[":
        return _after_class(pattern, at)
    closing = {"(": ")", "{": "}"}.get(char)
    if closing is None:
        return at + 1
    depth, i = 0, at
    while i < len(pattern):
        if pattern[i] == "\\":
            i += 1
        elif pattern[i] == "[":
            i = _after_class(pattern, i) - 1
        elif pattern[i] == char:
            depth += 1
        elif pattern[i] == closing:
            depth -= 1
            if depth == 0:
                # What follows a group may repeat or drop it; the group itself is passed over either way.
                return i + 1
        i += 1
    return len(pattern)


def _after_class(pattern: str, at: int) -> int:
    """Past a class, in which a bracket that comes first stands for itself."""
    i = at + 2 if pattern[at + 1 : at + 2] == "^" else at + 1
    i += pattern[i : i + 1] == "]"
    while i < len(pattern) and pattern[i] != "]":
        if pattern.startswith("[:", i) and (end := pattern.find(":]", i)) >= 0:
            i = end + 1
        i += 2 if pattern[i] == "\\" else 1
    return i + 1
