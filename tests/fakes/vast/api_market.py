"""Search, create, and the public tables."""

from __future__ import annotations

from typing import Any

from tests.fakes.vast import create, nasty, offers, pages
from tests.fakes.vast.call import Call
from tests.fakes.vast.errors import Refused
from tests.fakes.vast.gpus import GPUS
from tests.fakes.vast.instances import Instance

_BENCHMARK_COLUMNS = (
    "id machine_id gpu_name num_gpus value dph_base type template_hash template_id contract_id image launch_args"
    " last_update"
)
BENCHMARK_COLUMNS = frozenset(_BENCHMARK_COLUMNS.split())


def bundles(call: Call) -> dict[str, Any]:
    return {"offers": search(call, call.fields)}


def asks(call: Call) -> dict[str, Any]:
    query = call.fields.get("q")
    if not isinstance(query, dict):
        raise Refused(400, "bad_request", "q: Input should be a valid dictionary")
    return {"success": True, "offers": search(call, query)}


def search(call: Call, body: dict[str, Any]) -> list[dict[str, Any]]:
    """At most 64 offers, whatever is asked for."""
    market = call.market
    mine = {i.machine.id for i in call.account.live.values()} if call.key else set()
    question = offers.Search(body, market.unknown_field)
    found = []
    for offer in market.offers.values():
        rented = offer.machine.id in mine
        row = question.find(offer, market.now_ms, rented, sloppy=market.sloppy_search)
        if row is not None:
            found.append(row)
    question.sort(found)
    found = found[: question.limit]
    for change in market.search_changes:
        found = change(found)
    if market.extra_fields:
        found = [{**row, **market.extra_fields} for row in found]
    return found


def create_one(call: Call) -> dict[str, Any]:
    return rent(call, call.numbers[0], call.fields)


def create_bulk(call: Call) -> dict[str, Any]:
    """Several offers with one body; each has its own answer."""
    ids = call.fields.get("ids")
    if not isinstance(ids, list) or not ids or len(ids) > 64:
        raise Refused(400, "invalid_args", "ids: between 1 and 64 offers")
    results = []
    for number in ids:
        try:
            results.append({"ask_id": number, **rent(call, int(number), call.fields)})
        except Refused as no:
            results.append({"ask_id": number, **no.body})
    return {"success": all(r["success"] for r in results), "results": results}


def launch(call: Call) -> dict[str, Any]:
    """Search and create in one."""
    query = call.fields.get("q")
    found = search(call, query if isinstance(query, dict) else {})
    if not found:
        raise Refused(404, "no_such_ask", "No offer matches the query.")
    return rent(call, found[0]["id"], call.fields)


def rent(call: Call, offer_id: int, body: dict[str, Any]) -> dict[str, Any]:
    """Raises `Refused` in each way that Vast was seen to refuse a create call."""
    market, account = call.market, call.account
    order = create.parse(body, market.env_value_limit)
    if account.is_host:
        raise Refused(403, "invalid_args", f"Offer {offer_id} is not your own; hosts may rent only their own machines.")
    if account.spend_capped:
        raise Refused(400, "spend_rate_limit", "New accounts may spend only so much a day; contact support.")
    if account.purse.credit <= 0:
        raise Refused(400, "insufficient_credit", "Your account lacks credit; see the billing page.", drop=("success",))
    if order.runtype == "vm" and not account.ssh_keys:
        raise Refused(400, "no_ssh_key_for_vm", "A VM needs an SSH key in your account.")
    offer = market.offers.get(offer_id)
    twice = offer is None and market.double_rent and offer_id in market.withdrawn
    if twice:
        offer = market.withdrawn[offer_id]
    if offer is None or not offer.machine.rentable:
        market.gone_turn += 1
        raise create.gone(offer_id, market.gone_turn - 1)
    if order.disk_gb > offers.row(offer)["disk_space"]:
        raise Refused(400, "invalid_args", f"disk: the offer has {offers.row(offer)['disk_space']:g} GB")
    if twice:
        market.life.lives.insert(0, nasty.port_taken)
        return rented(market.rent(account, offer, order))
    if order.price is not None and order.price < offer.min_bid:
        i = market.rent_stopped(account, offer, order)
        text = (
            f"error 400/3910: bid {order.price:g} is below the market price {offer.min_bid:g}; the instance is stopped."
        )
        raise Refused(400, "bid_too_low", text, ask_id=offer_id, new_contract=i.id, instance_api_key=i.key)
    if not offer.machine.starts and order.target == "running":
        if order.cancel_unavailable:
            raise create.gone(offer_id, 2)
        return rented(market.rent_stopped(account, offer, order))
    if order.target == "stopped":
        return rented(market.rent_stopped(account, offer, order))
    return rented(market.rent(account, offer, order))


def rented(i: Instance) -> dict[str, Any]:
    return {"success": True, "new_contract": i.id, "instance_api_key": i.key}


def gpu_types(call: Call) -> dict[str, Any]:
    return {
        "success": True,
        "gpu_types": [
            {"id": n, "canonical_name": gpu.name, "gpu_ram_mb": gpu.ram_mb, "compute_cap": gpu.compute_cap}
            for n, gpu in enumerate(GPUS, 1)
        ],
    }


def gpu_names(call: Call) -> dict[str, Any]:
    return {"success": True, "gpu_names": sorted({o.machine.gpu.name for o in call.market.offers.values()})}


def benchmarks(call: Call) -> dict[str, Any]:
    """Everybody's benchmarks: one row a machine, at most 200 a page."""
    conditions = pages.filters(
        pages.parsed(call.query.get("select_filters"), "select_filters", dict), BENCHMARK_COLUMNS
    )
    order = pages.order_of(call.query.get("order_by"), BENCHMARK_COLUMNS)
    rows = [
        {
            "id": m.id * 10,
            "machine_id": m.id,
            "gpu_name": m.gpu.name,
            "num_gpus": m.num_gpus,
            "value": round(m.gpu.dlperf * m.num_gpus * m.true_speed, 2),
            "dph_base": m.dollars_per_gpu_hour * m.num_gpus,
            "type": "llm",
            "template_hash": "661d064bbda1f2a133816b6d55da07c3",
            "template_id": 91,
            "contract_id": None,
            "image": "vastai/vllm:latest",
            "launch_args": "",
            "last_update": m.listed_ms / 1000,
        }
        for m in call.market.machines.values()
    ]
    rows = [r for r in rows if pages.fits(r.get, conditions)]
    pages.sort(rows, dict.get, order)
    limit = pages.limit_of(call.query.get("limit"), 200, 200)
    start = pages.offset(call.query.get("after_token"))
    page = rows[start : start + limit]
    more = start + limit < len(rows)
    return {
        "success": True,
        "benchmarks": page,
        "benchmarks_found": len(page),
        "next_token": pages.token(start + limit) if more else None,
    }
