"""The fake's own API under `/_fake/`, for tests in other processes. JSON in, JSON out, no key, and none in the answers.

* `GET  state` accounts, offers, instances, time; `requests`, `violations`, `instances`, `offers`, `scenarios`
* `GET  bill?what=<label or id>` dollars by kind and in all
* `POST advance {seconds}`, `scenario {name, variant, ...}`, `fault {route, kind, times, ...}`, `clear`
* `POST account {key, credit}`, `machine {gpu_name, num_gpus, ...}`, `offers {count}`, `credit {dollars, account}`
* `POST instance {id, event}`, event one of stop, start, outbid, exit, offline, unknown, frozen, running, destroy
* `POST traffic {id, down_bytes, up_bytes}`, `tick`, `settings {name: value}` (plain attributes of market or limits)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.fakes.vast import motion, scenarios
from tests.fakes.vast.faults import Reply
from tests.fakes.vast.instances import Instance

if TYPE_CHECKING:
    from tests.fakes.vast.market import Market

PREFIX = "/_fake/"
Body = dict[str, Any]
MARKET_SETTINGS = frozenset(
    ("pull_s", "charges_lag_s", "credit_refresh_s", "skew_s", "read_lag_s", "unknown_field", "gone_form", "double_rent")
)
LIMIT_SETTINGS = frozenset(("enforce", "form", "retry_after", "search_quota"))


def answer(market: Market, method: str, name: str, query: dict[str, str], body: Any) -> Reply:
    """Carry out one order. 404 for one that is not known, 400 for one that makes no sense."""
    action = ACTIONS.get(f"{method} {name.strip('/')}")
    if action is None:
        return Reply(404, {"error": f"{method} {name} is none of {', '.join(ACTIONS)}"})
    try:
        return Reply(200, action(market, {**query, **(body if isinstance(body, dict) else {})}))
    except (ValueError, KeyError, TypeError, AttributeError) as no:
        return Reply(400, {"error": f"{type(no).__name__}: {no}"})


def _readable(body: Any) -> Any:
    return body.decode(errors="replace") if isinstance(body, bytes) else body


def brief(i: Instance) -> dict[str, Any]:
    return {
        "id": i.id,
        "label": i.label,
        "account": i.account.name,
        "machine_id": i.machine.id,
        "actual_status": i.actual,
        "intended_status": i.intended,
        "cur_state": i.cur,
        "live": i.live,
        "foreign": i.foreign,
        "touched": i.touched,
        "is_bid": i.is_bid,
        "dollars_per_hour": i.dph_base + i.disk_dollars_per_hour,
    }


def state(market: Market, _: Body) -> Body:
    return {
        "now_ms": market.now_ms,
        "accounts": [{"name": a.name, "credit": a.purse.credit, "instances": sorted(a.live)} for a in market.accounts],
        "offers": len(market.offers),
        "machines": len(market.machines),
        "live": len(market.live()),
        "rented": len(market.instances),
        "billed": market.bill(),
        "requests": len(market.requests),
        "violations": len(market.violations),
        "double_rentals": market.double_rentals(),
        "foreign_touched": [i.id for i in market.foreign_touched()],
    }


def bill(market: Market, body: Body) -> Body:
    kinds = market.bill_by_kind(body.get("what"))
    return {**kinds, "total": sum(kinds.values())}


def advance(market: Market, body: Body) -> Body:
    market.advance(float(body["seconds"]))
    return {"now_ms": market.now_ms}


def scenario(market: Market, body: Body) -> Body:
    market.scenario(body.pop("name"), body.pop("variant", ""), **body)
    return {"ok": True}


def fault(market: Market, body: Body) -> Body:
    market.fault(body.pop("route"), body.pop("kind"), body.pop("times", 1), **body)
    return {"ok": True}


def clear(market: Market, _: Body) -> Body:
    market.faults.clear()
    market.life.lives.clear()
    market.search_changes.clear()
    market.logs.planned.clear()
    return {"ok": True}


def account(market: Market, body: Body) -> Body:
    return {"id": market.add_account(**body).id}


def machine(market: Market, body: Body) -> Body:
    made = market.add_machine(**body)
    return {"machine_id": made.id, "offers": [o.id for o in made.offers.values()]}


def offers(market: Market, body: Body) -> Body:
    return {"offers": [o.id for o in market.seed_offers(int(body["count"]))]}


def credit(market: Market, body: Body) -> Body:
    which = next(a for a in market.accounts if body.get("account") in (None, a.name))
    which.purse.pay(float(body["dollars"]) - which.purse.credit)
    return {"credit": which.purse.credit}


def instance(market: Market, body: Body) -> Body:
    i, life = market.instances[int(body["id"])], market.life
    events: dict[str, Callable[[], object]] = {
        "stop": lambda: life.stop(i),
        "start": lambda: life.start(i),
        "outbid": lambda: life.outbid(i, body.get("resume_after_s")),
        "exit": lambda: life.exit(i, int(body.get("code", 1))),
        "destroy": lambda: life.destroy(i),
        **{one: partial(life.set, i, actual=one) for one in ("offline", "unknown", "frozen", "running")},
    }
    events[body["event"]]()
    return brief(i)


def traffic(market: Market, body: Body) -> Body:
    i = market.instances[int(body["id"])]
    market.transfer(i, int(body.get("down_bytes", 0)), int(body.get("up_bytes", 0)))
    return bill(market, {"what": i.id})


def tick(market: Market, _: Body) -> Body:
    motion.tick(market)
    return {"offers": len(market.offers)}


def settings(market: Market, body: Body) -> Body:
    for name, value in body.items():
        if name not in MARKET_SETTINGS | LIMIT_SETTINGS:
            raise ValueError(f"{name} is none of {', '.join(sorted(MARKET_SETTINGS | LIMIT_SETTINGS))}")
        setattr(market if name in MARKET_SETTINGS else market.limits, name, value)
    return {"ok": True}


ACTIONS: dict[str, Callable[[Market, Body], Any]] = {
    "GET state": state,
    "GET bill": bill,
    "GET requests": lambda market, _: [asdict(one) | {"body": _readable(one.body)} for one in market.requests],
    "GET violations": lambda market, _: [asdict(one) for one in market.violations],
    "GET instances": lambda market, _: [brief(i) for i in market.instances.values()],
    "GET offers": lambda market, _: [
        {"id": o.id, "machine_id": o.machine.id, "dph_base": o.dph_base, "true_speed": o.machine.true_speed}
        for o in market.offers.values()
    ],
    "GET scenarios": lambda market, _: scenarios.names(),
    "POST advance": advance,
    "POST scenario": scenario,
    "POST fault": fault,
    "POST clear": clear,
    "POST account": account,
    "POST machine": machine,
    "POST offers": offers,
    "POST credit": credit,
    "POST instance": instance,
    "POST traffic": traffic,
    "POST tick": tick,
    "POST settings": settings,
}
