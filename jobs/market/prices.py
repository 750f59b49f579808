"""What a rental costs: its price in parts, the bytes it moves, and the most that may be held for it.

The provider bills by the second: GPU and disk by state, bytes in both directions on top, in every state. A month is 720
hours and a GB 10^9 bytes, as on its price list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jobs.domain.models import Instance
    from jobs.settings import Settings

HOURS_A_MONTH = 720
GB = 10**9
TAIL_MARGIN_S = 60
BID_OVER_MINIMUM = 1.1

ALLOWED_DOWN_BYTES = 2 * GB
"""Allowed for what the machine reads besides key and witnesses: the layers of the image, and repeats."""
ALLOWED_UP_BYTES = GB // 4
"""Allowed for what it sends: logs, proofs, artifacts, the sealed bundle. One that sends more is stopped sooner."""


class Priced(Protocol):
    """An offer, as a provider gives it or as its row: `providers.base.OfferFacts` says what `facts` holds."""

    @property
    def dollars_per_hour(self) -> float: ...
    @property
    def facts(self) -> dict[str, Any]: ...


class Bidder(Protocol):
    """A run, or the request for one."""

    @property
    def interruptible(self) -> bool: ...
    @property
    def bid_dollars_per_hour(self) -> float | None: ...
    @property
    def max_dollars_per_hour(self) -> float | None: ...


@dataclass(frozen=True)
class Traffic:
    """Bytes that a rental moves, as the machine sees them: `down_bytes` to it, `up_bytes` from it."""

    down_bytes: int = 0
    up_bytes: int = 0


@dataclass(frozen=True)
class Price:
    """A rental's price in parts. `traffic_dollars` is what is held for its bytes from the start."""

    gpu_dollars_per_hour: float = 0.0
    disk_dollars_per_hour: float = 0.0
    dollars_per_gb_down: float = 0.0
    dollars_per_gb_up: float = 0.0
    traffic_dollars: float = 0.0

    @property
    def dollars_per_hour(self) -> float:
        """While it runs, bytes apart."""
        return self.gpu_dollars_per_hour + self.disk_dollars_per_hour

    def of(self, traffic: Traffic) -> float:
        """Dollars for these bytes."""
        down, up = traffic.down_bytes * self.dollars_per_gb_down, traffic.up_bytes * self.dollars_per_gb_up
        return (down + up) / GB

    def to_json(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Price:
        return cls(**{field.name: float(data[field.name]) for field in fields(cls) if field.name in data})


def price_of(offer: Priced, disk_gb: int, bid: float | None = None, traffic: Traffic | None = None) -> Price:
    """The price of `offer` with `disk_gb` of disk; `bid` is the GPU's price in dollars an hour where it is bid for.

    `traffic`: what the work will move besides the allowances. Where the offer's parts and its sum disagree, the dearer
    one counts.
    """
    facts = offer.facts
    disk = _dollars(facts, "disk_dollars_per_gb_month") / HOURS_A_MONTH
    gpu = offer.dollars_per_hour - disk * _dollars(facts, "disk_gb")
    gpu = max(gpu, _dollars(facts, "gpu_dollars_per_hour"), 0.0)
    down, up = _dollars(facts, "dollars_per_gb_down"), _dollars(facts, "dollars_per_gb_up")
    return priced(gpu if bid is None else bid, disk * disk_gb, down, up, traffic)


def priced(gpu: float, disk: float, down: float, up: float, traffic: Traffic | None = None) -> Price:
    """The price of these parts (dollars an hour, dollars a GB), with what is held for `traffic` and the allowances."""
    moved = traffic or Traffic()
    most = Traffic(moved.down_bytes + ALLOWED_DOWN_BYTES, moved.up_bytes + ALLOWED_UP_BYTES)
    return Price(gpu, disk, down, up, Price(0.0, 0.0, down, up).of(most))


def price_of_instance(instance: Instance) -> Price:
    """As it was written down with the intent to rent; without parts (adopted), the whole price counts as the GPU's."""
    return Price.from_json(instance.price) if instance.price else Price(instance.dollars_per_hour)


def bid_for(run: Bidder, offer: Priced, disk_gb: int) -> tuple[float | None, str]:
    """(GPU dollars an hour to bid, '') for an interruptible `run`, (None, '') for any other; or why this offer is out.

    Without a bid of the operator's own it is a tenth over the lowest that the offer takes now: enough to outlive the
    small moves of the market, and never so much that GPU and disk together pass the run's `max_dollars_per_hour`.
    """
    if not run.interruptible:
        return None, ""
    lowest = _dollars(offer.facts, "min_bid_dollars_per_hour")
    if not lowest:
        return None, "can't be had interruptible"
    bid = run.bid_dollars_per_hour or lowest * BID_OVER_MINIMUM
    if run.bid_dollars_per_hour is None and run.max_dollars_per_hour is not None:
        bid = min(bid, run.max_dollars_per_hour - price_of(offer, disk_gb, bid).disk_dollars_per_hour)
    if bid < lowest:
        return None, f"takes bids from ${lowest:.4g}/h, and ${max(bid, 0):.4g}/h is the most that may be bid"
    return bid, ""


def tail_s(settings: Settings, lease_s: int) -> int:
    """Seconds that a rental may go on after its last useful one: to seal, or until a dead controller's lease is out."""
    return settings.evidence_deadline_s + lease_s + TAIL_MARGIN_S


def least_dollars(settings: Settings, price: Price, lease_s: int) -> float:
    """What a rental may cost that is ended at once: the tail, and its bytes. Under this, none is begun."""
    return price.dollars_per_hour * tail_s(settings, lease_s) / 3600 + price.traffic_dollars


def hold_dollars(
    settings: Settings, price: Price, max_duration_s: int, lease_s: int, max_dollars: float | None
) -> float:
    """Dollars held for one rental: its longest life, the tail and its bytes; never more than `max_dollars`."""
    full = least_dollars(settings, price, lease_s) + price.dollars_per_hour * max_duration_s / 3600
    return full if max_dollars is None else min(full, max_dollars)


def money(dollars: float) -> str:
    """`$12.30`; four places for sums under a dollar, where they matter."""
    return f"${dollars:,.2f}" if abs(dollars) >= 1 or dollars == 0 else f"${dollars:,.4f}"


def _dollars(facts: Mapping[str, Any], name: str) -> float:
    """A price among an offer's facts; absent, null, negative or not a number counts as none."""
    value = facts.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and value > 0 else 0.0
