"""Our money at Vast.ai: what is left, and the bill. The bill lags behind by hours, sometimes by a day."""

from __future__ import annotations

import json

from jobs.market.providers.base import AccountFacts, ChargeFacts
from jobs.market.providers.vast_fields import label, number, text
from jobs.market.providers.vast_http import ACCOUNT, CHARGES, VastHttp

PAGE = 500
MAX_PAGES = 200


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
    params = {"select_filters": json.dumps(chosen), "limit": str(PAGE), "format": "tree"}
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


def _lines(row: dict[str, object]) -> list[ChargeFacts] | None:
    """A rental's costs by kind (gpu, disk, bwd, bwu), or as one where the bill does not part them; None: unreadable."""
    amount, begin_s, end_s = number(row, "amount", low=-1e9), number(row, "start"), number(row, "end")
    kind, _, provider_id = text(row, "source", 64).rpartition("-")
    if amount is None or begin_s is None or kind != "instance" or not provider_id.isdecimal():
        return None
    metadata, items = row.get("metadata"), row.get("items")
    name = label(metadata, "label") if isinstance(metadata, dict) else ""
    parts: dict[str, float] = {}
    for item in items if isinstance(items, list) else ():
        dollars = number(item, "amount", low=-1e9) if isinstance(item, dict) else None
        if dollars is None:
            return None
        part = text(item, "type", 16) or "other"
        parts[part] = parts.get(part, 0.0) + dollars
    rest = amount - sum(parts.values())
    if not parts or abs(rest) > 0.005:
        parts["instance"] = rest  # what the items leave out is paid for all the same
    end_ms = round((begin_s if end_s is None else end_s) * 1000)
    return [ChargeFacts(provider_id, part, round(begin_s * 1000), end_ms, d, name) for part, d in parts.items()]
