"""The account: user, keys, charges, invoices, webhooks."""

from __future__ import annotations

from typing import Any

from tests.fakes.vast import charges as bill
from tests.fakes.vast import pages
from tests.fakes.vast.call import Call
from tests.fakes.vast.errors import Refused

MAX_WEBHOOKS = 4
EVENTS = (
    "instance.created",
    "instance.started",
    "instance.stopped",
    "instance.resumed",
    "instance.deleted",
    "instance.outbid",
    "instance.end_date",
    "machine.maintenance",
    "machine.offline",
    "machine.online",
    "account.low_credit",
)


def current(call: Call) -> dict[str, Any]:
    """The user, credit and, in clear, the key. The credit is a few seconds old."""
    account, market = call.account, call.market
    at_ms, dollars = account.credit_shown
    if at_ms < 0 or market.now_ms - at_ms >= market.credit_refresh_s * 1000:
        dollars = account.purse.credit
        account.credit_shown = (market.now_ms, dollars)
    assert call.key is not None
    return {
        "id": account.id,
        "email": f"{account.name}@example.org",
        "username": account.name,
        "fullname": None,
        "credit": dollars,
        "balance": 0.0,
        "balance_threshold": 0.0,
        "autobill_threshold": None,
        "has_payment_method": account.card,
        "ssh_key": account.ssh_keys[0]["public_key"] if account.ssh_keys else None,
        "api_key": call.key.text,
        "sid": None,
        **market.extra_fields,
    }


def ssh_list(call: Call) -> list[dict[str, Any]]:
    if not call.account.ssh_keys:
        raise Refused(404, "not_found", "No SSH keys found.")
    return call.account.ssh_keys


def ssh_create(call: Call) -> dict[str, Any]:
    text = call.fields.get("ssh_key")
    if not isinstance(text, str) or not text.startswith("ssh-"):
        raise Refused(400, "invalid_args", "ssh_key: an OpenSSH public key")
    keys = call.account.ssh_keys
    key = {
        "id": 1 + max((k["id"] for k in keys), default=400),
        "user_id": call.account.id,
        "public_key": text.strip(),
        "created_at": call.market.now_ms // 1000,
        "deleted_at": None,
    }
    keys.append(key)
    return {"success": True, "key": key}


def ssh_update(call: Call) -> dict[str, Any]:
    key = _ssh_key(call)
    key["public_key"] = str(call.fields.get("ssh_key") or key["public_key"])
    return {"success": True, "key": key}


def ssh_delete(call: Call) -> dict[str, Any]:
    call.account.ssh_keys.remove(_ssh_key(call))
    return {"success": True}


def _ssh_key(call: Call) -> dict[str, Any]:
    for key in call.account.ssh_keys:
        if key["id"] == call.numbers[0]:
            return key
    raise Refused(404, "not_found", f"SSH key {call.numbers[0]} not found.")


def charges(call: Call) -> dict[str, Any]:
    """The bill by instance and day, as far as it is written. `day` is required."""
    query, market = call.query, call.market
    wanted = pages.parsed(query.get("select_filters"), "select_filters", dict)
    day = wanted.get("day")
    if not isinstance(day, dict) or not ({"gte", "gt"} & day.keys()) or not ({"lte", "lt"} & day.keys()):
        raise Refused(
            400, "invalid_args", "select_filters: day with gte and lte is required", drop=("success", "error")
        )
    begin, end = (next(float(day[op]) for op in ops if op in day) for ops in (("gte", "gt"), ("lte", "lt")))
    kinds = wanted.get("type", {}).get("in", ["instance"])
    mine = [i for i in market.instances.values() if i.account is call.account] if "instance" in kinds else []
    until_ms = market.now_ms - round(market.charges_lag_s * 1000)
    rows = bill.rows(mine, begin, end, until_ms, round(market.skew_s * 1000))
    rows.sort(key=lambda r: (r["start"], r["source"]), reverse=query.get("latest_first") == "true")
    if query.get("format") == "tree":
        rows = bill.tree(rows)
    return _page(query, rows, 100, 500)


def invoices(call: Call) -> dict[str, Any]:
    """Money paid in. A missing date is refused with HTTP 200."""
    query = call.query
    when = pages.parsed(query.get("select_filters"), "select_filters", dict).get("when")
    if not isinstance(when, dict) or not {"gte", "lte"} <= when.keys():
        raise Refused(200, "Invalid date range", "", drop=("msg",))
    rows = [
        {
            "start": payment["at_ms"] // 1000,
            "end": payment["at_ms"] // 1000,
            "type": "credit",
            "source": payment["service"],
            "description": "Credit purchase",
            "amount": payment["dollars"],
            "metadata": {"invoice_id": number},
            "items": [],
        }
        for number, payment in enumerate(call.account.payments, 7_000_001)
        if float(when["gte"]) <= payment["at_ms"] / 1000 <= float(when["lte"])
    ]
    if query.get("latest_first") == "true":
        rows.reverse()
    return _page(query, rows, 100, 100)


def _page(query: dict[str, str], rows: list[dict[str, Any]], default: int, most: int) -> dict[str, Any]:
    limit = pages.limit_of(query.get("limit"), default, most)
    start = pages.offset(query.get("after_token"))
    page = rows[start : start + limit]
    token = pages.token(start + limit) if start + limit < len(rows) else None
    return {"success": True, "results": page, "count": len(page), "total": len(rows), "next_token": token}


def notification_types(call: Call) -> dict[str, Any]:
    return {"success": True, "notification_types": EVENTS}


def webhooks(call: Call) -> dict[str, Any]:
    return {"success": True, "webhooks": call.account.webhooks}


def webhook_create(call: Call) -> dict[str, Any]:
    hooks, url = call.account.webhooks, str(call.fields.get("url") or "")
    if not url.startswith("https://"):
        raise Refused(400, "invalid_args", "url: a public https address")
    if len(hooks) >= MAX_WEBHOOKS:
        raise Refused(400, "invalid_args", f"at most {MAX_WEBHOOKS} webhooks per user")
    hook = {
        "id": 1 + max((h["id"] for h in hooks), default=0),
        "url": url,
        "events": call.fields.get("events") or EVENTS,
    }
    hooks.append(hook)
    return {"success": True, "webhook": hook, "secret": f"{call.market.rng.getrandbits(128):032x}"}


def webhook_delete(call: Call) -> dict[str, Any]:
    call.account.webhooks.remove(_webhook(call))
    return {"success": True}


def webhook_test(call: Call) -> dict[str, Any]:
    return {"success": True, "webhook_id": _webhook(call)["id"]}


def webhook_rotate(call: Call) -> dict[str, Any]:
    return {"success": True, "webhook_id": _webhook(call)["id"], "secret": f"{call.market.rng.getrandbits(128):032x}"}


def _webhook(call: Call) -> dict[str, Any]:
    for hook in call.account.webhooks:
        if hook["id"] == call.numbers[0]:
            return hook
    raise Refused(404, "not_found", f"Webhook {call.numbers[0]} not found.")


def rclone(call: Call) -> dict[str, Any]:
    """Copy to a cloud: needs a connection that nobody here has."""
    raise Refused(400, "invalid_args", "No cloud connection is stored for this account.")
