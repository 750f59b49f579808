"""Reading single fields out of what a marketplace answers: any of them may be null, absent, or of another type.

Nothing here raises for odd input. What is not usable is None, or '' for text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

# Control characters and lone surrogates: no database and no terminal should be asked to hold them.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_WHOLE = re.compile(r"[0-9]{1,18}")


def number(row: Mapping[str, Any], key: str, low: float = 0.0, high: float = 1e15) -> float | None:
    """A finite number from `low` to `high`; numeric text counts as one."""
    value = row.get(key)
    if isinstance(value, str) and len(value) <= 40:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        return None
    return float(value) if math.isfinite(value) else None


def whole(row: Mapping[str, Any], key: str) -> int | None:
    """A whole number from 0, below 10^18; its digits as text count as one."""
    value = row.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**18:
        return None
    return value


def text(row: Mapping[str, Any], key: str, limit: int) -> str:
    """Printable text of one line, its first `limit` characters."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return printable(str(value))[:limit].strip()


def end_of_text(row: Mapping[str, Any], key: str, limit: int) -> str:
    """As `text`, but the last characters: where a message grows, the end is what is new."""
    value = row.get(key)
    return printable(value)[-limit:].strip() if isinstance(value, str) else ""


def label(row: Mapping[str, Any], key: str) -> str:
    """A label, to be compared: nothing is stripped, so that none becomes equal to ours by being cleaned."""
    value = row.get(key)
    return _UNPRINTABLE.sub("\ufffd", value)[:300] if isinstance(value, str) else ""


def printable(value: str) -> str:
    """One line of it, without control characters."""
    return _UNPRINTABLE.sub(" ", value).strip()


def flag(row: Mapping[str, Any], key: str) -> bool | None:
    """True or False, also as 0 and 1; None where it says neither."""
    value = row.get(key)
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None
