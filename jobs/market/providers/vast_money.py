"""Our money at Vast.ai: what is left, and the bill. The bill lags behind by hours, sometimes by a day."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from jobs.market.providers.base import AccountFacts, ChargeFacts
from jobs.market.providers.vast_fields import label, number, text
from jobs.market.providers.vast_http import ACCOUNT, CHARGES, VastHttp

PAGE = 500
MAX_PAGES = 200
ROUNDED_DOLLARS = 0.005  # amounts have three decimals, and so may each of their parts


def account(http: VastHttp) -> AccountFacts:
    """What is left to spend. The answer also holds the account's key: nothing else of it is kept.

    Raises `ProviderUnavailable`.
    """
    answer = http.call(ACCOUNT)
    credit = number(answer.fields, "credit", low=-1e9)
    if not answer.good or credit is None:
        raise http.unusable(ACCOUNT, answer)
    return AccountFacts(credit)


def charges(http: VastHttp, begin_ms: int, end_ms: int) -> list[ChargeFacts]:
    """The bill of that time, a line for each rental and kind of cost. Half a bill is none.

    Raises `ProviderUnavailable`.
    """
    found: list[ChargeFacts] = []
    tokens: set[str] = set()
    chosen = {"day": {"gte": begin_ms // 1000, "lte": -(-end_ms // 1000)}, "type": {"in": ["instance"]}}
    params = {"select_filters": json.dumps(chosen), "limit": str(PAGE)}
    for _ in range(MAX_PAGES):
        answer = http.call(CHARGES, params=params)
        rows = answer.fields.get("results")
        if not answer.good or not isinstance(rows, list):
            raise http.unusable(CHARGES, answer)
        for row in rows:
            lines = _lines(row) if isinstance(row, dict) else None
            if lines is None:
                raise http.unusable(CHARGES, answer)
            found += lines
        token = answer.fields.get("next_token")
        if token is None or token == "":
            return found
        if not isinstance(token, str) or token in tokens:
            break
        tokens.add(token)
        params["after_token"] = token
    raise http.unusable(CHARGES, answer)


def _lines(row: dict[str, Any]) -> list[ChargeFacts] | None:
    """A rental's costs by kind (gpu, disk, bwd, bwu), or as one where the bill does not part them; None: unreadable."""
    amount, begin_s, end_s = number(row, "amount", low=-1e9), number(row, "start"), number(row, "end")
    kind, _, provider_id = text(row, "source", 64).rpartition("-")
    parts = _parts(row, begin_s, end_s)
    if amount is None or begin_s is None or parts is None or kind != "instance" or not provider_id.isdecimal():
        return None
    rest = amount - sum(part.dollars for part in parts)
    if not parts or abs(rest) > ROUNDED_DOLLARS:
        parts.append(_Part("instance", begin_s, end_s, rest))  # what the items leave out is paid for all the same
    metadata = row.get("metadata")
    name = label(metadata, "label") if isinstance(metadata, dict) else ""
    return [
        ChargeFacts(provider_id, p.kind, _ms(p.begin_s), max(_ms(p.begin_s), _ms(p.end_s)), p.dollars, name)
        for p in parts
    ]


class _Part(NamedTuple):
    kind: str
    begin_s: float | None
    end_s: float | None
    dollars: float


def _ms(seconds: float | None) -> int:
    return round((seconds or 0.0) * 1000)


def _parts(row: dict[str, Any], begin_s: float | None, end_s: float | None, depth: int = 3) -> list[_Part] | None:
    """The smallest items below `row`: by kind, or by day and kind. What has no times has those of its row."""
    items = row.get("items")
    found: list[_Part] = []
    for item in items if isinstance(items, list) else ():
        dollars = number(item, "amount", low=-1e9) if isinstance(item, dict) else None
        if dollars is None:
            return None
        since, until = number(item, "start") or begin_s, number(item, "end") or end_s
        below = _parts(item, since, until, depth - 1) if depth else []
        if below is None:
            return None
        found += below or [_Part(text(item, "type", 16) or "other", since, until, dollars)]
    return found
