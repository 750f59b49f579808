"""How grave a line is, as far as its words say."""

from __future__ import annotations

from typing import Any

import re2

INFO, WARN, ERROR = "info", "warn", "error"
LEVELS = (INFO, WARN, ERROR)

SEEN_BYTES = 2000  # of a line
MAX_COUNTED = 50  # lines of one chunk that are counted one by one


def _compiled(pattern: bytes) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # lines are bytes, not always UTF-8
    return re2.compile(pattern, options)


_ERROR_WORDS = (
    rb"(?:\b(?:fatal|panick?(?:ed)?|traceback|critical|crit|fail(?:ed|ure)?|segfault|oom-kill|aborted|abort)"
    rb"|error|exception)\b"
    rb"|\bcuda_error_\w|nvrm: xid"
)
_WARN_WORDS = rb"\b(?:warn(?:ing)?|retry(?:ing)?|timed? ?out|timeout|refused|denied)\b"
_ERROR, _WARN = _compiled(_ERROR_WORDS), _compiled(_WARN_WORDS)
# Each match takes the rest of its line with it: as many matches as lines.
_ERROR_LINE = _compiled(rb"(?:" + _ERROR_WORDS + rb")[^\n]*")
_GRAVE_LINE = _compiled(rb"(?:" + _ERROR_WORDS + rb"|" + _WARN_WORDS + rb")[^\n]*")
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
    """(warnings, errors) among the lines of a chunk; what it has of a line that goes over its edge counts as a line.

    Whether there are errors is exact; of very many the first are counted, and the rest by the room that those take.
    """
    lowered = raw.lower()
    if b"\x1b" in lowered:
        lowered = _COLOUR.sub(b" ", lowered)
    if not _GRAVE_LINE.search(lowered):
        return 0, 0
    if _NONE.search(lowered):
        lowered = _NONE.sub(b"", lowered)
    errors = _lines(_ERROR_LINE, lowered)
    return max(_lines(_GRAVE_LINE, lowered) - errors, 0), errors


def _lines(pattern: Any, lowered: bytes) -> int:
    found = 0
    for match in pattern.finditer(lowered):
        begin = lowered.rfind(b"\n", 0, match.start()) + 1
        found += match.start() - begin < SEEN_BYTES
        if found == MAX_COUNTED:
            return round(found * len(lowered) / match.end())
    return found
