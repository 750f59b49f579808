"""What every provider of machines can do, and each way it can fail, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

RUNNING, EXITED, LOADING, UNKNOWN = "running", "exited", "loading", "unknown"


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


class NoSuchInstance(ProviderError):
    """The provider knows no instance of this id (any more)."""


@dataclass(frozen=True)
class OfferFacts:
    """One machine, or part of one, that can be rented now. The columns of `jobs.domain.models.Offer`.

    `facts["trusted"]` is true where nothing isolates the payload from the operator's account.
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
class ProviderInstance:
    """One rented machine as the provider lists it. `status`: running | exited | loading | unknown."""

    provider_id: str
    label: str
    status: str
    machine_id: str
    dollars_per_hour: float
    detail: str = ""


@dataclass(frozen=True)
class Listing:
    """All that the provider lists under our account, strangers' labels included.

    Only a `complete` listing may be read as "what it does not show is not there".
    """

    complete: bool
    instances: list[ProviderInstance]


class Provider(Protocol):
    """Each call has a timeout of its own and raises nothing but `ProviderError`s."""

    name: str

    def scan(self) -> list[OfferFacts]:
        """What can be rented now. Raises `ProviderUnavailable`."""
        ...

    def rent(self, offer_id: str, label: str, env: Mapping[str, str]) -> str:
        """Rent `offer_id` under `label` and start the agent with `env` added to its environment.

        Returns the provider's id.

        Raises `OfferGone` and `RentalRefused` (nothing exists), `ProviderUnavailable` (look the label up).
        """
        ...

    def list(self) -> Listing:
        """Everything rented. Raises `ProviderUnavailable`."""
        ...

    def logs(self, provider_id: str, max_bytes: int) -> bytes:
        """The end of what the machine itself printed, at most `max_bytes`.

        Raises `NoSuchInstance`, `ProviderUnavailable`.
        """
        ...

    def destroy(self, provider_id: str) -> None:
        """End the rental. Idempotent: an unknown id is no error. Raises `ProviderUnavailable`; proof that it
        is gone is two complete listings without it, never this call's return."""
        ...
