"""What every provider of machines can do, and each way it can fail, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

RUNNING, EXITED, LOADING, UNKNOWN = "running", "exited", "loading", "unknown"
STOPPED, OFFLINE = "stopped", "offline"


class ProviderError(Exception):
    """Base of what providers raise; the text says what, why and what to do next."""


class UnknownProvider(ProviderError):
    """No provider has this name."""


class OfferGone(ProviderError):
    """The offer is not to be had any more: nothing was rented, take another one."""


class RentalRefused(ProviderError):
    """The provider understood and said no (credit, limits, bad order): nothing was rented, and
    asking again won't help."""


class ProviderUnavailable(ProviderError):
    """No answer, or not one that can be relied on. After `rent` it is open whether the machine exists:
    look the label up in a complete listing, never blindly rent again."""


class BeingListed(ProviderUnavailable):
    """Another process is reading the list at this moment: look again in a second."""


class NoSuchInstance(ProviderError):
    """The provider knows no instance of this id (any more)."""


class NoCredit(RentalRefused):
    """The account lacks money: no offer is to blame, and none can be rented until somebody pays."""


class KeyRefused(ProviderUnavailable):
    """The provider does not accept our key for this call: nothing it says is about machines or offers."""


class SearchQuotaUsedUp(ProviderUnavailable):
    """No more searches before `again_ms` (the provider's word, our clock)."""

    def __init__(self, message: str, again_ms: int):
        super().__init__(message)
        self.again_ms = again_ms


class RentedStopped(ProviderError):
    """The provider refused to start the machine, but made it all the same, stopped, and bills it: destroy it."""

    def __init__(self, message: str, provider_id: str):
        super().__init__(message)
        self.provider_id = provider_id


class LogsNotReady(ProviderError):
    """The logs were asked for, but are not there yet: fetch again in a second."""


@dataclass(frozen=True)
class OfferFacts:
    """One machine, or part of one, that can be rented now. The columns of `jobs.domain.market_models.Offer`.

    `dollars_per_hour` includes `facts["disk_gb"]` of disk. `facts`, each absent where the provider does not say:
    `trusted` (nothing isolates the payload from the operator's account), `gpu_frac` (0..1 of the machine's GPUs),
    `disk_gb`, `gpu_dollars_per_hour`, `disk_dollars_per_gb_month`, `min_bid_dollars_per_hour` (None: on-demand only),
    `inet_down_mbps`, `inet_up_mbps`, `dollars_per_gb_down`, `dollars_per_gb_up`, `reliability` (0..1),
    `verification`, `duration_s` (how long it can be rented), `cuda` (e.g. 12.8), `driver`, `compute_capability`
    (e.g. 8.9), `tflops` (fp32, of all its GPUs), `pcie_gbps`, `direct_ports`, `datacenter` (bool).
    """

    offer_id: str
    machine_id: str
    dollars_per_hour: float
    host_id: str = ""
    gpu_model: str = ""
    num_gpus: int = 0
    gpu_ram_bytes: int = 0
    cpu_model: str = ""
    cpu_cores: int = 0
    ram_bytes: int = 0
    disk_bytes: int = 0
    location: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """What is to be rented. `env` holds only `PROVEFLEET_*`. `image` is `repository@sha256:...`.

    `bid_dollars_per_hour` is set exactly when the machine shall be interruptible.
    """

    offer_id: str
    label: str
    env: Mapping[str, str]
    image: str = ""
    disk_gb: int = 0
    bid_dollars_per_hour: float | None = None


@dataclass(frozen=True)
class ProviderInstance:
    """One rented machine as the provider lists it. `status`: running | exited | loading | unknown | stopped | offline.

    `detail` is the provider's own message; while it changes, the machine moves on. `boot_failed` and `stopped_why`
    (outbid | no_credit | expired | stopped) are set when it will not come up by itself, or was stopped by the provider:
    what happened, '' else. `interruptible` is None where the provider does not say.
    """

    provider_id: str
    label: str
    status: str
    machine_id: str
    dollars_per_hour: float
    detail: str = ""
    host_id: str = ""
    interruptible: bool | None = None
    boot_failed: str = ""
    stopped_why: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AccountFacts:
    """Our money at the provider. A provider without accounts has none."""

    credit_dollars: float


@dataclass(frozen=True)
class ChargeFacts:
    """One line of the provider's bill; see `jobs.domain.market_models.Charge`."""

    provider_id: str
    kind: str
    begin_ms: int
    end_ms: int
    dollars: float
    label: str = ""


@dataclass(frozen=True)
class Listing:
    """All that the provider lists under our account, strangers' labels included.

    Only a `complete` listing may be read as "what it does not show is not there", and that of no moment after
    `begun_ms` (our clock; a provider leaves it 0, `jobs.market.listing` sets it).
    """

    complete: bool
    instances: list[ProviderInstance]
    begun_ms: int = 0


class Provider(Protocol):
    """Each call has a timeout of its own and raises nothing but `ProviderError`s.

    `remote`: its machines are elsewhere, and must be able to reach us. `bills`: it has an account and charges it.
    """

    name: str
    remote: bool
    bills: bool

    def scan(self) -> list[OfferFacts]:
        """What can be rented now. Raises `ProviderUnavailable`."""
        ...

    def rent(self, order: Order) -> str:
        """Rent the offer under the label and start the agent with `env` added to its environment.

        Returns the provider's id.

        Raises `OfferGone`, `NoCredit` and `RentalRefused` (nothing exists), `RentedStopped` (destroy what exists),
        `ProviderUnavailable` (look the label up).
        """
        ...

    def list(self) -> Listing:
        """Everything rented. Raises `ProviderUnavailable`."""
        ...

    def request_logs(self, provider_id: str) -> dict[str, Any]:
        """Ask for what the provider itself keeps of the machine's output; a JSON ticket to fetch it with.

        Raises `NoSuchInstance`, `ProviderUnavailable`.
        """
        ...

    def fetch_logs(self, ticket: dict[str, Any], max_bytes: int) -> dict[str, bytes]:
        """The end of each log by name (`provider.log`, `provider-daemon.log`), at most `max_bytes` each.

        Raises `LogsNotReady`, `NoSuchInstance`, `ProviderUnavailable`.
        """
        ...

    def destroy(self, provider_id: str) -> None:
        """End the rental. Idempotent: an unknown id is no error. Raises `ProviderUnavailable`; proof that it
        is gone is two complete listings without it, never this call's return."""
        ...

    def account(self) -> AccountFacts | None:
        """What is left to spend; None where nothing is billed. Raises `ProviderUnavailable`."""
        ...

    def charges(self, begin_ms: int, end_ms: int) -> Sequence[ChargeFacts]:
        """The bill for that time; it may lag by a day. Raises `ProviderUnavailable`."""
        ...
