"""How grave a line is, as far as its words say."""

from __future__ import annotations

from typing import Any

import re2

INFO, WARN, ERROR = "info", "warn", "error"
LEVELS = (INFO, WARN, ERROR)

SEEN_BYTES = 2000  # of a line
MAX_JUDGED = 100  # lines of one chunk; of more, the rest is counted in the same proportion


def _compiled(pattern: bytes) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # lines are bytes, not always UTF-8
    return re2.compile(pattern, options)


_ERROR = _compiled(
    rb"\b(?:error|fatal|panick?(?:ed)?|exception|traceback|critical|crit|fail(?:ed|ure)?|segfault|oom-kill|aborted|abort)\b"
    rb"|\b[a-z0-9_]+(?:error|exception)\b|\bcuda_error_\w+|nvrm: xid"
)
_WARN = _compiled(rb"\b(?:warn(?:ing)?|retry(?:ing)?|timed? ?out|timeout|refused|denied)\b")
# "0 errors", "errors: 0", "no error", "error_rate=0.0" are good news.
_NONE = _compiled(
    rb"\b(?:0|no|without) (?:\w+ )?(?:errors?|fail(?:ed|ures?)|warnings?)\b"
    rb"|\b(?:errors?|fail(?:ed|ures?)|warnings?)\w*[\"']?[:= ]+0(?:\.0+)?\b"
)
_COLOUR = _compiled(rb"\x1b\[[0-9;:]*m")  # ends in a letter, which would join the word behind it
# One of these is in every line that is more than info: most lines are told apart without an expression.
_NEEDLES = (
    b"error", b"fatal", b"panic", b"exception", b"traceback", b"crit", b"fail", b"segfault", b"oom-kill", b"abort",
    b"nvrm: xid", b"warn", b"retry", b"timed", b"timeout", b"time out", b"refused", b"denied",
)  # fmt: skip


def level_of(line: bytes) -> str:
    """`error`, `warn` or `info`. Only the first 2,000 bytes of a line are looked at."""
    return _level(line[:SEEN_BYTES].lower())


def _level(lowered: bytes) -> str:
    if not any(needle in lowered for needle in _NEEDLES):
        return INFO
    if b"\x1b" in lowered:
        lowered = _COLOUR.sub(b" ", lowered)
    error, warn = _ERROR.search(lowered), _WARN.search(lowered)
    if (error or warn) and _NONE.search(lowered):
        left = _NONE.sub(b"", lowered)
        error, warn = _ERROR.search(left), _WARN.search(left)
    return ERROR if error else WARN if warn else INFO


def counts(raw: bytes) -> tuple[int, int]:
    """(warnings, errors) among the lines of a chunk; what it has of a line that goes over its edge counts as a line."""
    lowered = raw.lower()
    begins = sorted({begin for needle in _NEEDLES for begin in _lines_with(lowered, needle)})
    levels = [_level(lowered[begin : _end(lowered, begin)]) for begin in begins[:MAX_JUDGED]]
    share = max(len(begins), 1) / max(len(levels), 1)
    return round(levels.count(WARN) * share), round(levels.count(ERROR) * share)


def _lines_with(lowered: bytes, needle: bytes) -> list[int]:
    """Where the lines begin that hold `needle`."""
    found = []
    at = lowered.find(needle)
    while at >= 0:
        found.append(lowered.rfind(b"\n", 0, at) + 1)
        at = lowered.find(needle, _newline(lowered, at))
    return found


def _newline(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _end(data: bytes, begin: int) -> int:
    return min(_newline(data, begin), begin + SEEN_BYTES)
