"""How grave a line is, as far as its words say."""

from __future__ import annotations

import re

INFO, WARN, ERROR = "info", "warn", "error"
LEVELS = (INFO, WARN, ERROR)

_ERROR = re.compile(
    rb"\b(?:error|fatal|panick?(?:ed)?|exception|traceback|critical|crit|fail(?:ed|ure)?|segfault|oom-kill|aborted|abort)\b"
    rb"|\b[a-z0-9_]+(?:error|exception)\b|\bcuda_error_\w+|nvrm: xid",
    re.IGNORECASE,
)
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
_WARN = re.compile(rb"\b(?:warn(?:ing)?|retry(?:ing)?|timed? ?out|timeout|refused|denied)\b", re.IGNORECASE)
# "0 errors", "errors: 0", "no error", "error_rate=0.0" are good news.
_NONE = re.compile(
    rb"\b(?:0|no|without) (?:\w+ )?(?:errors?|fail(?:ed|ures?)|warnings?)\b"
    rb"|\b(?:errors?|fail(?:ed|ures?)|warnings?)\w*[\"']?[:= ]+0(?:\.0+)?\b",
    re.IGNORECASE,
)


def level_of(line: bytes) -> str:
    """`error`, `warn` or `info`. Only the first 2,000 bytes of a line are looked at."""
    head = line[:2000]
    if b"\x1b" in head:
        head = _COLOUR.sub(b" ", head)  # its last letter would join the word that it colours
    if _ERROR.search(head):
        return INFO if _NONE.search(head) and not _ERROR.search(_NONE.sub(b"", head)) else ERROR
    return WARN if _WARN.search(_NONE.sub(b"", head)) else INFO
