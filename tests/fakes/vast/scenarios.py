"""The nasty cases N1 to N35 by name, as the reference lists them; some have variants.

A case arms what will happen to the next call, or to the next instance that is rented; what it does is in its
docstring. Those that change what is there already do so at once. `account` is the one meant, the first by default.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.fakes.vast import nasty
from tests.fakes.vast.accounts import Account
from tests.fakes.vast.logs import Upload

if TYPE_CHECKING:
    from tests.fakes.vast.market import Market

CREATE, DESTROY, LIST = "PUT /api/v0/asks/{id}", "DELETE /api/v0/instances/{id}", "GET /api/v1/instances"
SHOW, SEARCH, LOGS = "GET /api/v0/instances/{id}", "POST /api/v0/bundles", "PUT /api/v0/instances/request_logs/{id}"

Case = Callable[..., Any]


def arm(market: Market, name: str, variant: str = "", **options: Any) -> Any:
    """Raises ValueError for a case or a variant that does not exist."""
    name, _, inline = name.partition(":")
    variant = variant or inline
    case = CASES.get(name.upper())
    if case is None:
        raise ValueError(f"no scenario is called {name!r}: one of N1 to N35")
    variants = VARIANTS.get(name.upper(), ())
    if variant and variant not in variants:
        raise ValueError(f"{name} has no variant {variant!r}: {', '.join(variants) or 'none at all'}")
    if variants:
        return case(market, variant or variants[0], **options)
    return case(market, **options)


def names() -> list[str]:
    """Every case with each of its variants, as `arm` takes them."""
    return [f"{name}:{v}" if v else name for name in CASES for v in VARIANTS.get(name, ("",))]


# Calls that break (N1, N2, N4, N5, N23, N24, N26, N29).


def create_breaks(market: Market, *, kind: str, times: int = 1, **options: Any) -> Any:
    return market.fault(CREATE, kind, times, **options)


def create_says_no(market: Market, variant: str, times: int = 1) -> Any:
    """N4: success false on 200; nothing was rented, or, `applied`, something was."""
    return market.fault(CREATE, "success_false_after" if variant == "applied" else "success_false", times)


def destroy_breaks(market: Market, variant: str, times: int | None = None) -> Any:
    """N23: destroy answers 429, 500, nothing although it was done, success false, or success and the thing is back."""
    if variant == "reappears":
        market.life.reappearing += times or 1
        return None
    kinds = {"429": "429_text", "500": "500_before", "timeout": "timeout_after", "success_false": "success_false"}
    return market.fault(DESTROY, kinds[variant], times or (1 if variant == "timeout" else 3))


def destroy_unknown_key(market: Market, times: int = 3) -> Any:
    """N24: 404, and it is about the key."""
    body = {"success": False, "error": "auth_error", "msg": "Invalid user key"}
    return market.fault(DESTROY, "reply", times, status=404, body=body)


def logs_too_late(market: Market, times: int = 2) -> Any:
    """N26: logs are asked for when the instance is gone."""
    body = {"success": False, "error": "invalid_id", "msg": "Instance not found."}
    return market.fault(LOGS, "reply", times, status=404, body=body)


def page_instead(market: Market, variant: str, route: str = LIST, times: int = 1) -> Any:
    """N29: a maintenance page with 200, an empty body, a redirect to another host."""
    return market.fault(route, variant, times)


# Instances that go wrong (N3, N6 to N22, N33).


def next_lives(market: Market, *, life: Case, times: int = 1) -> None:
    market.life.lives.extend([life] * times)


def by_variant(market: Market, variant: str, *, lives: dict[str, Case], times: int = 1) -> None:
    market.life.lives.extend([lives[variant]] * times)


def both_accepted(market: Market) -> None:
    """N3: an offer can be rented twice; the second one can't bind its ports and never starts."""
    market.double_rent = True


def credit_gone(market: Market, account: Account | None = None, dollars: float = 0.0) -> None:
    """N21: the credit falls to `dollars`; at zero all instances stop at once."""
    account = account or market.accounts[0]
    account.purse.pay(dollars - account.purse.credit)


# Logs (N25).


def log_trouble(market: Market, variant: str, times: int = 2) -> None:
    """N25: the next requests for logs: late, never, stale, cut, huge, with bytes that are no text, and so on."""
    uploads = {
        "late": Upload(60.0),
        "never": Upload(None),
        "stale": Upload(20.0, stale=b"yesterday's output of another container\n"),
        "truncated": Upload(change=lambda text: text[: len(text) // 2]),
        "huge": Upload(change=lambda text: (text + b"x" * 99 + b"\n").ljust(1 << 20, b"."), repeat=300),
        "invalid_utf8": Upload(change=lambda text: text + b"\xff\xfe\xc3\x28 caf\xe9\n"),
        "progress": Upload(change=lambda text: text + b"".join(b"\r%3d%%|####" % n for n in range(101)) + b"\n"),
    }
    if variant == "secret":
        market.logs.shows_env += times
        return
    market.logs.planned.extend([uploads[variant]] * times)


# The list (N27, N28, N35).


def list_trouble(market: Market, variant: str, account: Account | None = None, times: int = 1) -> Any:
    """N27: page 2 fails, the token repeats, the total is wrong, a row has nulls; or just 26 or 51 instances."""
    account = account or market.accounts[0]
    if variant in ("26", "51"):
        return fill(market, account, int(variant))
    if variant == "nulls":
        found = list(account.live.values()) or fill(market, account, 1)
        found[0].overrides.update(start_date=None, extra_env=None, ports=None, status_msg=None, gpu_name=None)
        return found[0]
    if len(account.live) < 26:
        fill(market, account, 26)
    if variant == "page2":
        return market.fault(LIST, "500_before", times, only=lambda query: bool(query.get("after_token")))
    if variant == "repeats":
        seen: list[str] = []
        return market.fault(LIST, "change", 10**6, change=partial(_same_token, seen))
    return market.fault(LIST, "change", times, change=lambda body: {**body, "total_instances": 99})


def _same_token(seen: list[str], body: dict[str, Any]) -> dict[str, Any]:
    """Always the first token, and never an end."""
    seen.append(body["next_token"] or (seen[0] if seen else ""))
    return {**body, "next_token": seen[0] or None}


def fill(market: Market, account: Account, count: int) -> list[Any]:
    """Strangers' instances until the account has `count`."""
    return [market.add_instance(account, f"batch-{n}") for n in range(len(account.live), count)]


def foreigners(market: Market, account: Account | None = None, prefix: str = "provefleet:") -> list[Any]:
    """N28: instances of others under the same account, some with labels that look almost like ours."""
    account = account or market.accounts[0]
    stem = prefix.rstrip(":")
    uuid = "0b9d7c1e-5d0f-4c57-9b7e-6f1d2a3b4c5d"
    labels = (
        None, "", "training-run", stem, prefix, f"{stem}-{uuid}", f"{stem}2:{uuid}", f" {prefix}{uuid}",
        f"{prefix}{uuid}:extra", f"{prefix}not-a-uuid", f"{prefix.upper()}{uuid}", f"x{prefix}{uuid}",
    )  # fmt: skip
    return [market.add_instance(account, label) for label in labels]


def sweep(market: Market, account: Account | None = None, labels: tuple[str, ...] = ()) -> list[Any]:
    """N35: what a sweep would find while the database is down: strangers, and what is ours under `labels`."""
    account = account or market.accounts[0]
    return foreigners(market, account) + [market.add_instance(account, one, foreign=False) for one in labels]


# Search (N30, N31), and the rest.


def search_trouble(market: Market, variant: str) -> None:
    """N30: filters are forgotten, nothing is found, fields are null, the price rises between search and create."""
    if variant == "violates":
        market.sloppy_search = True
    elif variant == "zero":
        market.search_changes.append(lambda rows: [])
    elif variant == "nulls":
        market.search_changes.append(_with_nulls)
    else:
        market.search_changes.append(partial(_dearer, market))


NULLABLE = (
    "cpu_cores", "cpu_name", "cpu_ghz", "gpu_ram", "reliability", "reliability2", "inet_down", "inet_up",
    "inet_down_cost", "inet_up_cost", "duration", "direct_port_count", "cuda_max_good", "geolocation", "min_bid",
    "disk_space", "machine_id", "dph_total", "driver_version", "storage_cost", "host_id", "num_gpus", "compute_cap",
)  # fmt: skip


def _with_nulls(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row lacks another field, and every fifth one is whole."""
    found = []
    for n, row in enumerate(rows):
        name = NULLABLE[n % len(NULLABLE)]
        found.append(row if n % 5 == 4 else {**row, name: None})
    return found


def _dearer(market: Market, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answer is right; the moment it is out, everything costs half as much again."""
    market.search_changes.clear()
    for row in rows:
        market.offers[row["id"]].price_factor *= 1.5
    return rows


def quota_gone(market: Market) -> None:
    """N31: no more searches until midnight UTC."""
    market.limits.search_quota = 0


def skewed(market: Market, seconds: float = -420.0) -> None:
    """N32: Vast's clock is seven minutes behind ours."""
    market.skew_s = seconds


def extra_keys(market: Market) -> None:
    """N34: keys that nobody has heard of, in every answer and row."""
    market.extra_fields = {"zz_unheard": {"deep": [1, None, "x"]}, "is_quantum": True, "": None}


CASES: dict[str, Case] = {
    "N1": partial(create_breaks, kind="reset_after"),
    "N2": partial(create_breaks, kind="504_after"),
    "N3": both_accepted,
    "N4": create_says_no,
    "N5": partial(create_breaks, kind="drop", fields=("new_contract",)),
    "N6": partial(next_lives, life=nasty.hidden_from_show),
    "N7": partial(next_lives, life=nasty.hidden_from_list),
    "N8": partial(next_lives, life=nasty.silent),
    "N9": partial(next_lives, life=nasty.slow),
    "N10": partial(next_lives, life=nasty.stuck),
    "N11": partial(next_lives, life=nasty.no_manifest),
    "N12": partial(next_lives, life=nasty.oci_error),
    "N13": partial(by_variant, lives={"late": nasty.late_ports, "never": nasty.no_ports}),
    "N14": partial(by_variant, lives={"direct_dead": nasty.no_direct_ssh, "proxy_dead": nasty.no_proxy_ssh}),
    "N15": partial(by_variant, lives={"smi": nasty.no_driver, "gpu": nasty.other_gpu, "vram": nasty.less_vram}),
    "N16": partial(next_lives, life=nasty.killed),
    "N17": partial(next_lives, life=nasty.restarting),
    "N18": partial(next_lives, life=nasty.blip),
    "N19": partial(next_lives, life=nasty.offline),
    "N20": partial(next_lives, life=nasty.outbid),
    "N21": credit_gone,
    "N22": partial(next_lives, life=nasty.ending),
    "N23": destroy_breaks,
    "N24": destroy_unknown_key,
    "N25": log_trouble,
    "N26": logs_too_late,
    "N27": list_trouble,
    "N28": foreigners,
    "N29": page_instead,
    "N30": search_trouble,
    "N31": quota_gone,
    "N32": skewed,
    "N33": partial(next_lives, life=nasty.unheard),
    "N34": extra_keys,
    "N35": sweep,
}
# The first one is what a case does when none is named.
VARIANTS: dict[str, tuple[str, ...]] = {
    "N4": ("refused", "applied"),
    "N13": ("late", "never"),
    "N14": ("direct_dead", "proxy_dead"),
    "N15": ("smi", "gpu", "vram"),
    "N23": ("500", "429", "timeout", "success_false", "reappears"),
    "N25": ("late", "never", "stale", "truncated", "huge", "invalid_utf8", "progress", "secret"),
    "N27": ("page2", "repeats", "total", "nulls", "26", "51"),
    "N29": ("html", "empty", "redirect"),
    "N30": ("violates", "zero", "nulls", "price"),
}
