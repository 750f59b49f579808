"""What runs under our account at Vast.ai: the list, walked to its end, and one row of it as we read it.

A walk that does not add up is no list of everything, and says so: `complete` is what lets others believe that something
is gone.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from jobs.market.providers import base
from jobs.market.providers.base import Listing, ProviderInstance
from jobs.market.providers.vast_fields import end_of_text, flag, label, number, text, whole
from jobs.market.providers.vast_http import LIST, VastHttp

log = logging.getLogger(__name__)

PAGE = 25
MAX_PAGES = 400
MAX_MESSAGE = 2000
_STATUS = {
    "": base.LOADING,  # null: being provisioned
    "created": base.LOADING,
    "loading": base.LOADING,
    "rebooting": base.LOADING,
    "running": base.RUNNING,
    "exited": base.EXITED,
    "stopped": base.STOPPED,
    "frozen": base.STOPPED,
    "unknown": base.UNKNOWN,
    "offline": base.OFFLINE,
}
# What no waiting mends. "Unable to find image ... locally" is how every pull begins.
_HOPELESS = re.compile(
    r"manifest for .{1,300} not found|manifest unknown|pull access denied|repository does not exist|unauthorized:"
    r"|failed to resolve reference|unable to find image(?!.{0,300} locally)|oci runtime|error response from daemon"
    r"|port is already allocated|address already in use|failed to bind|no space left|unexpected fault address",
    re.IGNORECASE,
)
_NUMBERS = {
    "num_gpus": "num_gpus",
    "gpu_ram_mib": "gpu_ram",
    "disk_gb": "disk_space",
    "min_bid": "min_bid",
    "inet_down_mbps": "inet_down",
    "inet_up_mbps": "inet_up",
    "dollars_per_gb_down": "inet_down_cost",
    "dollars_per_gb_up": "inet_up_cost",
    "gpu_dollars_per_hour": "dph_base",
    "disk_dollars_per_hour": "storage_total_cost",
    "cuda": "cuda_max_good",
    "reliability": "reliability2",
}
_TEXTS = {
    "gpu_name": "gpu_name",
    "image": "image_uuid",
    "driver": "driver_version",
    "runtype": "image_runtype",
    "actual": "actual_status",
    "intended": "intended_status",
    "cur_state": "cur_state",
    "next_state": "next_state",
    "location": "geolocation",
}


def walk(http: VastHttp, now_ms: int) -> Listing:
    """All pages. Raises `ProviderUnavailable` where a page is no list at all; what else does not add up (a token again,
    another total, a row without a number, too few rows) makes the listing incomplete."""
    rows: dict[int, ProviderInstance] = {}
    totals: set[int | None] = set()
    tokens: set[str] = set()
    token, count = "", 0
    for _ in range(MAX_PAGES):
        params = {"limit": str(PAGE), "order_by": json.dumps([{"col": "id", "dir": "asc"}])}
        answer = http.call(LIST, params=params | ({"after_token": token} if token else {}))
        page = answer.fields.get("instances")
        if not answer.good or not isinstance(page, list):
            raise http.unusable(LIST, answer)
        count += len(page)
        totals.add(whole(answer.fields, "total_instances"))
        read = [instance(row, now_ms) for row in page if isinstance(row, dict)]
        rows.update((int(i.provider_id), i) for i in read if i is not None)
        following = answer.fields.get("next_token")
        if following is None or following == "":
            return _checked(rows, count, totals, "")
        if not isinstance(following, str) or following in tokens or not page:
            return _checked(rows, count, totals, "its pages don't end: a page came with a token that leads nowhere new")
        token = following
        tokens.add(token)
    return _checked(rows, count, totals, f"it has over {MAX_PAGES} pages")


def _checked(rows: dict[int, ProviderInstance], count: int, totals: set[int | None], why: str) -> Listing:
    if not why and totals != {len(rows)}:
        said = ", then ".join(str(t) for t in totals)
        why = f"it says {said} instances and shows {len(rows)}"
    if not why and count != len(rows):
        why = f"{count - len(rows)} of its rows came twice or have no number"
    if why:
        log.warning("Vast.ai's list of instances is not complete: %s", why)
    return Listing(not why, list(rows.values()))


def instance(row: Mapping[str, Any], now_ms: int) -> ProviderInstance | None:
    """One row, whatever it lacks; None without a number. Secrets in it (`extra_env`, `onstart`, `jupyter_token`) are
    left where they are.

    States, by vast_api 2.4: what the contract says (`cur_state`, `intended_status`, `next_state`) goes before
    `actual_status`, which keeps its last value when a machine is stopped.
    """
    number_ = whole(row, "id")
    if number_ is None:
        return None
    actual, message = text(row, "actual_status", 32), end_of_text(row, "status_msg", MAX_MESSAGE)
    status = _STATUS.get(actual, base.UNKNOWN)
    intended, current, following = (text(row, k, 32) for k in ("intended_status", "cur_state", "next_state"))
    if status != base.OFFLINE and current == intended == "stopped" and following in ("stopped", ""):
        status = base.STOPPED
    machine, host = whole(row, "machine_id"), whole(row, "host_id")
    return ProviderInstance(
        provider_id=str(number_),
        label=label(row, "label"),
        status=status,
        machine_id="" if machine is None else str(machine),
        dollars_per_hour=number(row, "dph_total") or 0.0,
        detail=message,
        host_id="" if host is None else str(host),
        interruptible=flag(row, "is_bid"),
        boot_failed=_boot_failed(status, intended, message),
        stopped_why=_stopped_why(row, now_ms) if status == base.STOPPED else "",
        facts=_facts(row),
    )


def _boot_failed(status: str, intended: str, message: str) -> str:
    """Why it will not come up by itself; '' where it may. What ran once has no boot to fail."""
    if status not in (base.LOADING, base.EXITED):
        return ""
    if _HOPELESS.search(message):
        return message[-300:]
    if status == base.LOADING and intended in ("stopped", "frozen"):
        return f"Vast.ai gave up starting it: {message[-300:] or 'it does not say why'}"
    return ""


def _stopped_why(row: Mapping[str, Any], now_ms: int) -> str:
    """As far as the row says; an account without money stops everything, which `with_credit` adds."""
    end_s = number(row, "end_date")
    if end_s and end_s * 1000 <= now_ms:
        return "expired"
    return "outbid" if flag(row, "is_bid") else "stopped"


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    start_s, end_s = number(row, "start_date"), number(row, "end_date")
    facts: dict[str, Any] = {name: value for name, key in _NUMBERS.items() if (value := number(row, key)) is not None}
    facts |= {name: words for name, key in _TEXTS.items() if (words := text(row, key, 300))}
    facts |= {"start_ms": round(start_s * 1000)} if start_s else {}
    facts |= {"end_ms": round(end_s * 1000)} if end_s else {}
    ports = _ports(row)
    facts["ports"] = ports
    # Two ways to one machine; host and port of one never go with those of the other.
    address, proxy = text(row, "public_ipaddr", 64), text(row, "ssh_host", 253)
    if address and "22/tcp" in ports:
        facts["ssh_direct"] = {"host": address, "port": ports["22/tcp"]}
    if proxy and (port := whole(row, "ssh_port")):
        # The proxy of a machine with Jupyter keeps ssh one port further.
        facts["ssh_proxy"] = {"host": proxy, "port": port + ("jupyter" in text(row, "image_runtype", 100))}
    return facts


def _ports(row: Mapping[str, Any]) -> dict[str, int]:
    """{"22/tcp": port outside}; empty until it runs."""
    ports = row.get("ports")
    found: dict[str, int] = {}
    for name, bindings in ports.items() if isinstance(ports, dict) else ():
        for binding in bindings if isinstance(bindings, list) else ():
            port = whole(binding, "HostPort") if isinstance(binding, dict) else None
            if port and port < 65536:
                found.setdefault(str(name)[:32], port)
    return found
