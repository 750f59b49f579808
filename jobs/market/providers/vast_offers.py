"""Searching Vast.ai's offers: what we ask for, how we get past 64 of them, and what we believe of the answer.

Every filter is sent with every search, since what is left out has defaults that differ between clients; each is checked
here again, since the service does not always honour them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.market.providers.base import OfferFacts
from jobs.market.providers.vast_fields import flag, number, text, whole
from jobs.market.providers.vast_http import SEARCH, VastHttp
from jobs.settings import Settings

PAGE = 64
MAX_PAGES = 16
MAX_BID_PAGES = 8
HOURS_PER_MONTH = 720  # Vast's month, for storage
MIB = 1 << 20
MIN_RELIABILITY = 0.9
MIN_DOWN_MBPS = 50.0
MIN_DURATION_S = 3600.0
# Prices may be rounded on their way to us: a page begins a little before the last one's end.
ROUNDING = 1e-6
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda have, want: bool(have == want),
    "gte": lambda have, want: bool(have >= want),
}


@dataclass(frozen=True)
class Filter:
    """`field` `operator` `value`, as it is sent. `fields` are what an offer calls it; `unknown_fits` says whether an
    offer without any of them is let through."""

    field: str
    operator: str
    value: bool | float | str
    fields: tuple[str, ...] = ()
    unknown_fits: bool = False

    def fits(self, row: Mapping[str, Any]) -> bool:
        """True if the offer really has it."""
        have = next((h for name in self.fields or (self.field,) if (h := self._read(row, name)) is not None), None)
        return self.unknown_fits if have is None else _OPERATORS[self.operator](have, self.value)

    def _read(self, row: Mapping[str, Any], name: str) -> bool | float | str | None:
        if isinstance(self.value, bool):
            return row[name] == "verified" if name == "verification" and row.get(name) else flag(row, name)
        return (text(row, name, 100) or None) if isinstance(self.value, str) else number(row, name)


def filters(settings: Settings) -> tuple[Filter, ...]:
    """What a machine must have, so that the payload image can work there."""
    return (
        Filter("verified", "eq", True, ("verified", "verification"), unknown_fits=True),
        Filter("external", "eq", False, unknown_fits=True),
        Filter("rentable", "eq", True),
        Filter("rented", "eq", False, unknown_fits=True),
        Filter("cpu_arch", "eq", "amd64", unknown_fits=True),
        Filter("gpu_arch", "eq", "nvidia", unknown_fits=True),
        Filter("num_gpus", "gte", 1.0),
        Filter("compute_cap", "gte", round(settings.rent_min_compute_capability * 100)),
        Filter("cuda_max_good", "gte", settings.rent_min_cuda),
        Filter("disk_space", "gte", float(settings.rent_disk_gb)),
        Filter("reliability2", "gte", MIN_RELIABILITY, ("reliability2", "reliability")),
        Filter("inet_down", "gte", MIN_DOWN_MBPS),
        Filter("duration", "gte", MIN_DURATION_S),
    )


def scan(http: VastHttp, settings: Settings) -> list[OfferFacts]:
    """The cheapest offers on demand, up to 1,000 of them, each with the least bid where it can be had for one.

    Raises `ProviderUnavailable`, `SearchQuotaUsedUp`.
    """
    wanted = filters(settings)
    found = list(_pages(http, wanted, settings.rent_disk_gb, "on-demand", MAX_PAGES))
    bids = _pages(http, wanted, settings.rent_disk_gb, "bid", MAX_BID_PAGES) if found else iter(())
    floor = {
        whole(row, "id"): bid for row in bids if (bid := number(row, "min_bid", low=0.001, high=128.0)) is not None
    }
    offers = (facts(row, settings.rent_disk_gb, floor.get(whole(row, "id"))) for row in found)
    return [offer for offer in offers if offer is not None]


def _pages(
    http: VastHttp, wanted: tuple[Filter, ...], disk_gb: int, kind: str, max_pages: int
) -> Iterator[Mapping[str, Any]]:
    """Offers that fit, by rising price, each once. The service shows 64 at most: the next search begins at the price
    where the last one ended."""
    seen: set[int] = set()
    price: dict[str, float] = {}
    for _ in range(max_pages):
        rows = search(http, query(wanted, disk_gb, kind, price))
        fresh = [(id_, row) for row in rows if (id_ := whole(row, "id")) is not None and id_ not in seen]
        seen.update(id_ for id_, _ in fresh)
        yield from (row for _, row in fresh if all(f.fits(row) for f in wanted))
        prices = [p for row in rows if (p := number(row, "dph_total")) is not None]
        if len(rows) < PAGE or not prices:
            return
        last = max(prices)
        # A page of nothing but known offers is one price with 64 or more of them: step over it.
        price = {"gte": last * (1 - ROUNDING)} if fresh else {"gt": last * (1 + ROUNDING)}


def query(
    wanted: tuple[Filter, ...], disk_gb: float, kind: str = "on-demand", price: dict[str, float] | None = None
) -> dict[str, Any]:
    """A search as it is sent. `disk_gb` is what the prices include."""
    fields: dict[str, Any] = {f.field: {f.operator: f.value} for f in wanted}
    fields |= {"type": kind, "order": [["dph_total", "asc"]], "limit": PAGE, "allocated_storage": float(disk_gb)}
    return fields | ({"dph_total": price} if price else {})


def search(http: VastHttp, fields: dict[str, Any]) -> list[Mapping[str, Any]]:
    """The rows of one search. Raises `ProviderUnavailable`, `SearchQuotaUsedUp`."""
    answer = http.call(SEARCH, body=fields)
    rows = answer.fields.get("offers")
    if not answer.good or not isinstance(rows, list):
        raise http.unusable(SEARCH, answer)
    return [row for row in rows if isinstance(row, dict)]


def facts(row: Mapping[str, Any], disk_gb: int, min_bid: float | None) -> OfferFacts | None:
    """The offer as the rest of the program knows it; None where it lacks what one must know to rent it."""
    offer_id, machine_id = whole(row, "id"), whole(row, "machine_id")
    dollars, gpu_ram = _dollars_per_hour(row, disk_gb), number(row, "gpu_ram")
    gpu_model = text(row, "gpu_name", 100).replace("_", " ")
    if offer_id is None or machine_id is None or not dollars or not gpu_ram or not gpu_model:
        return None
    gpus = whole(row, "num_gpus") or 1
    share = _share(row)
    cores = number(row, "cpu_cores_effective") or (number(row, "cpu_cores") or 0.0) * share
    capability = number(row, "compute_cap")
    known = {
        "gpu_frac": number(row, "gpu_frac", high=1.0),
        "gpu_dollars_per_hour": number(row, "dph_base"),
        "disk_dollars_per_gb_month": number(row, "storage_cost"),
        "inet_down_mbps": number(row, "inet_down"),
        "inet_up_mbps": number(row, "inet_up"),
        "dollars_per_gb_down": number(row, "inet_down_cost"),
        "dollars_per_gb_up": number(row, "inet_up_cost"),
        "reliability": number(row, "reliability2", high=1.0) or number(row, "reliability", high=1.0),
        "verification": text(row, "verification", 32) or None,
        "duration_s": number(row, "duration"),
        "cuda": number(row, "cuda_max_good"),
        "driver": text(row, "driver_version", 32) or None,
        "compute_capability": None if capability is None else capability / 100,
        "pcie_gbps": number(row, "pcie_bw"),
        "pcie_gen": number(row, "pci_gen"),
        "pcie_lanes": whole(row, "gpu_lanes"),
        "tflops": number(row, "total_flops"),
        "direct_ports": whole(row, "direct_port_count"),
        "datacenter": None if whole(row, "hosting_type") is None else whole(row, "hosting_type") == 1,
    }
    return OfferFacts(
        offer_id=str(offer_id),
        machine_id=str(machine_id),
        dollars_per_hour=dollars,
        host_id="" if (host := whole(row, "host_id")) is None else str(host),
        gpu_model=gpu_model,
        num_gpus=gpus,
        gpu_ram_bytes=round(gpu_ram * MIB),
        cpu_model=text(row, "cpu_name", 200),
        cpu_cores=round(cores),
        ram_bytes=round((number(row, "cpu_ram") or 0.0) * MIB * share),
        disk_bytes=round((number(row, "disk_space") or 0.0) * 1e9),
        location=text(row, "geolocation", 64),
        facts={
            "disk_gb": disk_gb,
            "min_bid_dollars_per_hour": min_bid,
            **{name: value for name, value in known.items() if value is not None},
        },
    )


def _dollars_per_hour(row: Mapping[str, Any], disk_gb: int) -> float | None:
    """The price with our disk. Where the total was made for a smaller disk than we rent, the parts say more."""
    total, gpu, disk = number(row, "dph_total"), number(row, "dph_base"), number(row, "storage_cost")
    if not total or gpu is None or disk is None:
        return total
    parts = gpu + disk * disk_gb / HOURS_PER_MONTH
    return parts if parts > total * 1.01 else total


def _share(row: Mapping[str, Any]) -> float:
    """The part of the machine that one gets: memory is advertised for the whole of it."""
    mine, all_ = number(row, "cpu_cores_effective"), number(row, "cpu_cores")
    if mine and all_:
        return min(1.0, mine / all_)
    return number(row, "gpu_frac", high=1.0) or 1.0
