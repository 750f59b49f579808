"""Search: an offer as Vast shows it, the filters, the order, the cap of 64."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tests.fakes.vast.errors import Refused
from tests.fakes.vast.gpus import GPUS
from tests.fakes.vast.machines import Machine, Offer

CAP = 64
HOURS_PER_MONTH = 720
DEFAULT_STORAGE_GB = 8.0
TYPES = {
    "on-demand": "on-demand",
    "ondemand": "on-demand",
    "bid": "bid",
    "interruptible": "bid",
    "reserved": "reserved",
}
# What is no filter. `external` is one, but the client also sends it bare.
_PLAIN = (
    "type order limit allocated_storage disable_bundling target_reliability extra_ids template_id gpu_option"
    " show_incompatible sort_option select_cols"
)
PLAIN = frozenset(_PLAIN.split())
BARE = frozenset(("external", "has_avx"))
DEFAULTS: dict[str, dict[str, Any]] = {
    "verified": {"eq": True},
    "rentable": {"eq": True},
    "rented": {"eq": False},
    "cpu_arch": {"eq": "amd64"},
}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "lt": operator.lt,
    "gte": operator.ge,
    "lte": operator.le,
    "in": lambda have, wanted: have in wanted,
    "notin": lambda have, wanted: have not in wanted,
}
# Fields that depend on the question, the moment or the market.
_MOVING = (
    "dph_base dph_total min_bid discounted_dph_total storage_total_cost vram_costperhour dlperf_per_dphtotal"
    " flops_per_dphtotal score is_bid rentable rented duration end_date start_date"
)
MOVING = frozenset(_MOVING.split())
ALIASES = {"datacenter": "hosting_type", "driver_version": "driver_vers"}


def row(offer: Offer) -> dict[str, Any]:
    """The part of the answer that does not depend on the question. Made once an offer."""
    if offer.row:
        return offer.row
    m, gpu, n = offer.machine, offer.machine.gpu, len(offer.gpus)
    share = n / m.num_gpus
    parts = [int(part) for part in m.driver.split(".")]
    offer.row = {
        "id": offer.id,
        "ask_contract_id": offer.id,
        "bundle_id": 700_000_000 + m.id,
        "bundled_results": None,
        "machine_id": m.id,
        "host_id": m.host_id,
        "gpu_name": gpu.name,
        "gpu_arch": gpu.arch,
        "gpu_ids": list(offer.gpus),
        "num_gpus": n,
        "gpu_frac": share,
        "gpu_ram": gpu.ram_mb,
        "gpu_total_ram": gpu.ram_mb * n,
        "gpu_mem_bw": gpu.mem_gbps,
        "gpu_lanes": 16,
        "gpu_max_power": float(gpu.watts),
        "gpu_max_temp": 90.0,
        "gpu_display_active": False,
        "bw_nvlink": 0.0,
        "compute_cap": gpu.compute_cap,
        "total_flops": round(gpu.tflops * n, 3),
        "dlperf": round(gpu.dlperf * n, 4),
        "cuda_max_good": m.cuda if gpu.arch == "nvidia" else None,
        "driver_version": m.driver,
        "driver_vers": parts[0] * 1_000_000 + parts[1] * 1_000 + parts[2],
        "cpu_name": m.cpu_name,
        "cpu_arch": m.cpu_arch,
        "cpu_cores": m.cpu_cores,
        "cpu_cores_effective": round(m.cpu_cores * share, 2),
        "cpu_ghz": m.cpu_ghz,
        "cpu_ram": m.cpu_ram_mb,
        "has_avx": 1,
        "mobo_name": "ROMED8-2T",
        "os_version": "22.04",
        "ubuntu_version": "22.04",
        "disk_space": round(m.disk_gb * share, 1),
        "disk_bw": m.disk_mbps,
        "disk_name": m.disk_name,
        "inet_up": m.inet_up_mbps,
        "inet_down": m.inet_down_mbps,
        "inet_up_cost": m.dollars_per_gb_up,
        "inet_down_cost": m.dollars_per_gb_down,
        "internet_up_cost_per_tb": m.dollars_per_gb_up * 1000,
        "internet_down_cost_per_tb": m.dollars_per_gb_down * 1000,
        "pci_gen": m.pci_gen,
        "pcie_bw": m.pcie_gbps,
        "direct_port_count": max(0, m.direct_ports // m.num_gpus * n),
        "static_ip": m.static_ip,
        "public_ipaddr": m.public_ip,
        "reliability": m.reliability,
        "reliability2": m.reliability,
        "reliability_mult": 1.0,
        "expected_reliability": m.reliability,
        "verification": m.verification,
        "vericode": {"verified": 1, "unverified": 0}.get(m.verification, -1),
        "hosting_type": 1 if m.datacenter else 0,
        "external": m.external,
        "vms_enabled": False,
        "resource_type": "gpu",
        "geolocation": m.location,
        "geolocode": sum(m.location.encode()) * 7919,
        "storage_cost": m.storage_dollars_per_gb_month,
        "credit_discount_max": 0.4,
        "credit_balance": None,
        "credit_discount": None,
        "time_remaining": "",
        "cluster_id": None,
        "avail_vol_ask_id": None,
        "avail_vol_dph": None,
        "avail_vol_size": None,
        "nw_disk_avg_bw": None,
        "nw_disk_max_bw": None,
        "nw_disk_min_bw": None,
        "logo": "/static/logos/vastai_small2.png",
        "webpage": None,
        "rn": 1,
    }
    return offer.row


def shown(offer: Offer, kind: str, storage_gb: float, now_ms: int, rented: bool) -> dict[str, Any]:
    """One offer of the answer: what it costs with `storage_gb` of disk, and how long it can be had."""
    m = offer.machine
    base = offer.min_bid if kind == "bid" else offer.dph_base * (0.7 if kind == "reserved" else 1.0)
    disk = m.storage_dollars_per_gb_month * storage_gb / HOURS_PER_MONTH
    total = base + disk
    found = dict(row(offer))
    dlperf, flops = found["dlperf"], found["total_flops"]
    found.update(
        dph_base=base,
        min_bid=offer.min_bid,
        dph_total=total,
        discounted_dph_total=total,
        discounted_hourly=0.0,
        storage_total_cost=disk,
        vram_costperhour=total / max(found["gpu_total_ram"], 1),
        dlperf_per_dphtotal=dlperf / total if total else None,
        flops_per_dphtotal=flops / total if total else None,
        score=dlperf / total * m.reliability if total else 0.0,
        is_bid=kind == "bid",
        rentable=m.rentable and m.listed,
        rented=rented,
        duration=m.duration_s,
        end_date=now_ms / 1000 + m.duration_s,
        start_date=m.listed_ms / 1000,
        search={
            "gpuCostPerHour": base,
            "diskHour": disk,
            "totalHour": total,
            "discountTotalHour": 0.0,
            "discountedTotalPerHour": total,
        },
        instance={
            "gpuCostPerHour": 0.0,
            "diskHour": disk,
            "totalHour": disk,
            "discountTotalHour": 0.0,
            "discountedTotalPerHour": disk,
        },
    )
    return found


# What a search may filter by: whatever an offer has, and two names that are no fields of it.
_SAMPLE = Offer(0, Machine(0, 0, GPUS[0], 1, 1.0), (0,))
FIELDS = frozenset(shown(_SAMPLE, "on-demand", DEFAULT_STORAGE_GB, 0, False)) | {"verified", *ALIASES}


class Search:
    """A question, checked and ready to be asked of each offer.

    Raises `Refused` (400) for a bare value, an unknown operator and, with `unknown="400"`, an unknown field.
    """

    def __init__(self, body: dict[str, Any], unknown: str = "ignore"):
        self.kind = TYPES.get(str(body.get("type") or "on-demand"), "")
        if not self.kind:
            raise Refused(400, "invalid_args", f"type: {body['type']!r} is not one of on-demand, bid, reserved")
        self.storage_gb = number(body.get("allocated_storage"), "allocated_storage", DEFAULT_STORAGE_GB)
        self.limit = min(CAP, int(number(body.get("limit"), "limit", CAP))) or CAP
        self.order = [(str(c[0]), str(c[1] if len(c) > 1 else "asc")) for c in body.get("order") or [["score", "desc"]]]
        self.filters: list[tuple[str, str, Any]] = []
        for name, wanted in {**DEFAULTS, **body}.items():
            if name in PLAIN:
                continue
            if not isinstance(wanted, dict):
                if name not in BARE:
                    raise Refused(
                        400, "bad_request", f"q.{name}: Input should be a valid dictionary; got {type(wanted).__name__}"
                    )
                if wanted is not None:
                    self.filters.append((name, "eq", wanted))
                continue
            if name not in FIELDS:
                if unknown == "400":
                    raise Refused(400, "invalid_request", f"{name} is not a valid search key")
                continue
            for op, value in wanted.items():
                if op not in OPERATORS:
                    raise Refused(400, "bad_request", f"q.{name}.{op}: Extra inputs are not permitted")
                self.filters.append((name, op, value))

    def find(self, offer: Offer, now_ms: int, rented: bool, sloppy: bool = False) -> dict[str, Any] | None:
        """The offer as the answer shows it, None where it does not fit, unless the search is `sloppy`.

        Most fail on what is known already.
        """
        fixed = row(offer)
        if sloppy:
            return shown(offer, self.kind, self.storage_gb, now_ms, rented)
        if not all(matches(fixed, name, op, value) for name, op, value in self.filters if name not in MOVING):
            return None
        found = shown(offer, self.kind, self.storage_gb, now_ms, rented)
        moving = (one for one in self.filters if one[0] in MOVING)
        return found if all(matches(found, *one) for one in moving) else None

    def sort(self, rows: list[dict[str, Any]]) -> None:
        """By several fields, the first one first; what has no value comes last."""
        for name, direction in reversed(self.order):
            down = direction.lower().startswith("desc")
            have = [r for r in rows if r.get(name) is not None]
            have.sort(key=lambda r: r[name], reverse=down)
            rows[:] = have + [r for r in rows if r.get(name) is None]


def matches(offer: dict[str, Any], name: str, op: str, wanted: Any) -> bool:
    """One condition on one offer. Numbers may come as text; a missing value fits nothing but `neq` and `notin`."""
    if name == "id":
        return False
    if name == "rented" and op == "eq" and wanted is True:
        return True  # "also where I rent already"
    if name == "verified":
        have: Any = offer["verification"] == "verified"
    elif name == "datacenter":
        have = offer["hosting_type"] == 1
    elif name == "geolocation":
        have = str(offer["geolocation"] or "").rsplit(", ", 1)[-1]
    else:
        have = offer.get(ALIASES.get(name, name))
    if have is None:
        return op in ("neq", "notin") or (op == "eq" and wanted is None)
    try:
        if op in ("in", "notin"):
            wanted = [alike(have, one) for one in (wanted if isinstance(wanted, list) else [wanted])]
        else:
            wanted = alike(have, wanted)
        return OPERATORS[op](have, wanted)
    except (TypeError, ValueError):
        return op in ("neq", "notin")


def alike(have: Any, wanted: Any) -> Any:
    """`wanted` as what it is compared with. Raises ValueError, TypeError where it can't be."""
    if isinstance(have, bool):
        return wanted.lower() in ("true", "1") if isinstance(wanted, str) else bool(wanted)
    if isinstance(have, int | float) and isinstance(wanted, str):
        return float(wanted)
    return wanted


def number(value: Any, name: str, default: float) -> float:
    """Raises `Refused` (400) for what is no number."""
    if value is None:
        return float(default)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Refused(400, "bad_request", f"{name}: Input should be a valid number") from None
