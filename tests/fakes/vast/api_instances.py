"""Instances: list, show, change, destroy, logs, commands, keys."""

from __future__ import annotations

import json
from bisect import bisect_right
from functools import partial
from typing import Any

from tests.fakes.vast import instances, logs, pages
from tests.fakes.vast.call import Call
from tests.fakes.vast.create import MAX_BID, MAX_RELABEL, MIN_BID
from tests.fakes.vast.errors import Refused
from tests.fakes.vast.instances import Instance


def row(call: Call, i: Instance) -> dict[str, Any]:
    market = call.market
    found = instances.row(i, market.now_ms, round(market.skew_s * 1000))
    return {**found, **market.extra_fields} if market.extra_fields else found


def list_v1(call: Call) -> dict[str, Any]:
    """One page, at most 25 rows."""
    query, market = call.query, call.market
    limit = pages.limit_of(query.get("limit"))
    conditions = pages.filters(pages.parsed(query.get("select_filters"), "select_filters", dict), instances.STORED)
    order = pages.order_of(query.get("order_by"), instances.STORED)
    columns = pages.parsed(query.get("select_cols"), "select_cols", list) if query.get("select_cols") else ["*"]
    found = [i for i in call.account.live.values() if i.listed_from_ms <= market.now_ms]
    if conditions:
        found = [i for i in found if pages.fits(partial(instances.column, i), conditions)]
    if order != [("id", False)]:
        pages.sort(found, instances.column, order)
    start = _start(found, query.get("after_token"), order == [("id", False)])
    page = found[start : start + limit]
    rows = [row(call, i) for i in page]
    if "*" not in columns:
        rows = [{name: r.get(name) for name in columns} for r in rows]
    labels: dict[str, int] = {}
    for i in found:
        labels[i.label or ""] = labels.get(i.label or "", 0) + 1
    more = start + limit < len(found)
    return {
        "success": True,
        "instances_found": len(page),
        "total_instances": len(found),
        "label_counts": labels,
        "next_token": pages.token([page[-1].id, start + limit]) if more else None,
        "instances": rows,
    }


def _start(found: list[Instance], token: str | None, by_id: bool) -> int:
    """Where the page begins. By id it does not matter what was destroyed since the last page."""
    if not token:
        return 0
    values = pages.after(token)
    if not (isinstance(values, list) and len(values) == 2 and all(isinstance(v, int) for v in values)):
        raise Refused(400, "invalid_token", "after_token is not valid")
    last_id, offset = values
    return bisect_right([i.id for i in found], last_id) if by_id else offset


def list_v0(call: Call) -> dict[str, Any]:
    """The retired list: some accounts still see it."""
    if call.account.v0_list == "410":
        text = "/api/v0/instances/ is deprecated. Use /api/v1/instances/ instead."
        raise Refused(410, "deprecated_endpoint", text)
    seen = [i for i in call.account.live.values() if i.listed_from_ms <= call.market.now_ms]
    return {"instances_found": len(seen), "instances": [row(call, i) for i in seen]}


def filters(call: Call) -> dict[str, Any]:
    combinations = {(i.actual, i.machine.verification, i.machine.gpu.name) for i in call.account.live.values()}
    names = ("actual_status", "verification", "gpu_name")
    rows = [dict(zip(names, one, strict=True)) for one in sorted(combinations, key=str)]
    return {"success": True, "filters": rows}


def show(call: Call) -> dict[str, Any]:
    """An object under a plural key; null for what is destroyed, unknown, or not visible yet."""
    i = call.account.live.get(call.numbers[0])
    if i is None and call.market.gone_form == "404":
        raise Refused(404, "no_such_instance", f"Instance {call.numbers[0]} not found.")
    if i is None or i.shown_from_ms > call.market.now_ms:
        return {"instances": None}
    return {"instances": {**row(call, i), "volume_info": None}}


def update(call: Call) -> dict[str, Any]:
    """Start, stop or a new label."""
    return change(call, call.instance(write=True))


def update_bulk(call: Call) -> dict[str, Any]:
    ids = call.fields.get("ids")
    if not isinstance(ids, list) or not ids:
        raise Refused(400, "invalid_args", "ids: a list of instances")
    for number in ids:
        change(call, call.find(int(number), write=True))
    return {"success": True}


def change(call: Call, i: Instance) -> dict[str, Any]:
    """Raises `Refused` with HTTP 200 for a start that has to wait."""
    life, body = call.market.life, call.fields
    if "label" in body:
        label = body["label"]
        if label is not None and len(str(label)) > MAX_RELABEL:
            raise Refused(400, "invalid_args", f"label is longer than {MAX_RELABEL} characters")
        i.label = None if label is None else str(label)
        return {"success": True}
    match body.get("state"):
        case "stopped":
            life.stop(i)
        case "running":
            if i.account.purse.credit <= 0:
                raise Refused(400, "insufficient_credit", "Your account lacks credit; see the billing page.")
            life.start(i)
        case _:
            raise Refused(400, "invalid_args", "state must be running or stopped")
    return {"success": True}


def destroy(call: Call) -> dict[str, Any]:
    call.market.life.order_destroy(call.instance(write=True))
    return {"success": True}


def destroy_bulk(call: Call) -> dict[str, Any]:
    """What isn't there any more is passed over."""
    ids = call.fields.get("instance_ids")
    if not isinstance(ids, list) or not ids or len(ids) > 64:
        raise Refused(400, "invalid_args", "instance_ids: between 1 and 64 instances")
    gone = []
    for number in ids:
        try:
            call.market.life.order_destroy(call.find(int(number), write=True))
            gone.append(number)
        except Refused:
            continue
    return {"success": True, "destroyed": gone}


def reboot(call: Call) -> dict[str, Any]:
    i = call.instance(write=True)
    if i.cur != "running":
        raise Refused(400, "invalid_args", "The instance is not running.")
    call.market.life.reboot(i)
    return {"success": True}


def recycle(call: Call) -> dict[str, Any]:
    i = call.instance(write=True)
    if i.cur != "running":
        raise Refused(400, "invalid_args", "The instance is not running.")
    call.market.life.recycle(i)
    return {"success": True}


def bid_price(call: Call) -> dict[str, Any]:
    """A new bid. Below the market it loses the machine at once."""
    i = call.instance(write=True)
    price = call.fields.get("price")
    if not i.is_bid:
        raise Refused(400, "invalid_args", "The instance is not interruptible.")
    if not isinstance(price, int | float) or not MIN_BID <= price <= MAX_BID:
        raise Refused(400, "invalid_price", f"price must be between {MIN_BID} and {MAX_BID} $/hour per machine")
    call.market.life.set(i, dph_base=float(price))
    if price < i.offer.min_bid and i.cur == "running":
        call.market.life.outbid(i)
    return {"success": True}


def update_template(call: Call) -> dict[str, Any]:
    """Another image, script or environment: a new container."""
    i, body = call.instance(write=True), call.fields
    i.image = str(body.get("image") or i.image)
    i.onstart = str(body.get("onstart") or i.onstart)
    if isinstance(body.get("env"), dict):
        i.asked_env = {str(k): str(v) for k, v in body["env"].items()}
    call.market.life.recycle(i)
    return {"success": True, "updated_instance": {"id": i.id, "image": i.image}}


def request_logs(call: Call) -> dict[str, Any]:
    number = call.numbers[0]
    i = call.account.live.get(number)
    if i is None and number in call.market.instances and call.market.instances[number].account is not call.account:
        raise Refused(403, "not_authorized", "You are not authorized to read these logs.")
    if i is None:
        raise Refused(404, "invalid_id", f"Instance {number} not found.")
    assert call.key is not None
    url = call.market.logs.request(i, call.key.text, call.body if isinstance(call.body, dict) else {})
    return {"success": True, "result_url": url, "msg": "Logs will be available at the URL shortly."}


def command(call: Call) -> dict[str, Any]:
    i = call.account.live.get(call.numbers[0])
    if i is None:
        raise Refused(400, "invalid_container_id", f"Container {call.numbers[0]} not found.")
    if not isinstance(call.body, dict):
        raise Refused(483, "invalid_request", "Invalid json body")
    assert call.key is not None
    output = logs.listing(i, str(call.body.get("command") or ""))
    url = call.market.logs.execute(i, call.key.text, output)
    return {"success": True, "writeable_path": "/var/lib/docker/overlay2/", "result_url": url, "msg": ""}


def ssh_list(call: Call) -> dict[str, Any]:
    """The keys come as a string that holds JSON."""
    return {"success": True, "ssh_keys": json.dumps(call.instance().ssh_keys)}


def ssh_attach(call: Call) -> dict[str, Any]:
    i, text = call.instance(write=True), call.fields.get("ssh_key")
    if not isinstance(text, str) or not text.strip():
        raise Refused(400, "invalid_args", "ssh_key is required")
    i.ssh_keys.append({"id": len(i.ssh_keys) + 1, "public_key": text.strip()})
    return {"success": True, "msg": "SSH key added to instance successfully."}


def ssh_detach(call: Call) -> dict[str, Any]:
    i = call.instance(write=True)
    kept = [key for key in i.ssh_keys if key["id"] != call.numbers[1]]
    if len(kept) == len(i.ssh_keys):
        raise Refused(404, "not_found", "No such key on this instance.")
    i.ssh_keys = kept
    return {"success": True, "msg": "SSH key removed from instance."}


def balance(call: Call) -> dict[str, Any]:
    i = call.instance()
    return {"success": True, "instance_id": i.id, "balance": 0.0, "reserved": 0.0, "discount": 0.0}
