"""Listings in pages: filters, order and an opaque token, as the v1 routes have them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.fakes.vast.errors import Refused
from tests.fakes.vast.offers import OPERATORS

MAX_ROWS = 25


def limit_of(text: str | None, default: int = MAX_ROWS, most: int = MAX_ROWS) -> int:
    """Rows of a page: zero and less mean five, more than `most` means `most`."""
    if text is None or text == "":
        return default
    try:
        wanted = int(float(text))
    except ValueError:
        raise Refused(400, "invalid_request", "limit: Input should be a valid integer") from None
    return 5 if wanted <= 0 else min(wanted, most)


def parsed(text: str | None, name: str, kind: type) -> Any:
    """A query parameter that holds JSON. Raises `Refused` (400) for anything but a `kind`."""
    if not text:
        return kind()
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        raise Refused(400, "invalid_request", f"{name}: Input should be valid JSON")
    return value


def token(values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps({"values": values}).encode()).decode()


def after(text: str) -> Any:
    """What a token stands for. Raises `Refused` (400)."""
    try:
        return json.loads(base64.urlsafe_b64decode(text.encode()))["values"]
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise Refused(400, "invalid_token", "after_token is not valid") from None


def offset(text: str | None) -> int:
    """Where the page begins, for listings whose token is a number. Raises `Refused` (400)."""
    value = after(text) if text else 0
    if not isinstance(value, int) or value < 0:
        raise Refused(400, "invalid_token", "after_token is not valid")
    return value


Filter = tuple[str, str, Any]


def filters(query: dict[str, Any], stored: frozenset[str]) -> list[Filter]:
    """Raises `Refused` (400) for a column that can't be searched and an operator that isn't one."""
    found = []
    for name, conditions in query.items():
        if name not in stored:
            raise Refused(400, "invalid_request", f"{name} is not a valid search key")
        if not isinstance(conditions, dict):
            raise Refused(400, "bad_request", f"{name}: Input should be a valid dictionary")
        for op, value in conditions.items():
            if op not in OPERATORS:
                raise Refused(400, "bad_request", f"{name}.{op}: Extra inputs are not permitted")
            found.append((name, op, value))
    return found


def fits(value: Callable[[str], Any], conditions: list[Filter]) -> bool:
    """Null compares equal to null, and is neither more nor less than anything."""
    for name, op, wanted in conditions:
        have = value(name)
        try:
            if not OPERATORS[op](have, wanted):
                return False
        except TypeError:
            return False
    return True


def order_of(text: str | None, stored: frozenset[str]) -> list[tuple[str, bool]]:
    """(column, descending) pairs; the id is always the last one."""
    found = []
    for entry in parsed(text, "order_by", list):
        name = entry.get("col") if isinstance(entry, dict) else None
        if name not in stored:
            raise Refused(400, "invalid_request", f"{name} is not a valid search key")
        found.append((name, str(entry.get("dir", "asc")).lower() == "desc"))
    return found if any(name == "id" for name, _ in found) else [*found, ("id", False)]


def sort(rows: list[Any], value: Callable[[Any, str], Any], order: Sequence[tuple[str, bool]]) -> None:
    for name, down in reversed(order):
        rows.sort(key=lambda r: _rank(value(r, name)), reverse=down)


def _rank(value: Any) -> tuple[bool, Any]:
    return value is not None, 0 if value is None else value
