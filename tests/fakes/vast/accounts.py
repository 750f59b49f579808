"""Accounts, their keys and what a key may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.fakes.vast.billing import Purse

if TYPE_CHECKING:
    from tests.fakes.vast.instances import Instance

SCOPES = frozenset(("misc", "user_read", "user_write", "instance_read", "instance_write", "billing_read"))


@dataclass(slots=True, eq=False, repr=False)
class Key:
    """One API key. `instance_id` is set for the key that Vast puts into a container: good for that instance alone.

    `state`: good | deleted | tfa (needs a second factor) | expired (the session of one ran out).
    """

    text: str
    name: str
    account: Account
    scopes: frozenset[str] = SCOPES
    instance_id: int | None = None
    state: str = "good"

    def __repr__(self) -> str:
        return f"<Key of {self.name}, {self.state}>"


@dataclass(slots=True, eq=False, repr=False)
class Account:
    """One customer. `v0_list`: whether the retired list of instances still answers ("200") or not ("410")."""

    id: int
    name: str
    purse: Purse
    keys: list[Key] = field(default_factory=list)
    live: dict[int, Instance] = field(default_factory=dict)
    """What is rented now, by id."""
    ssh_keys: list[dict[str, Any]] = field(default_factory=list)
    payments: list[dict[str, Any]] = field(default_factory=list)
    webhooks: list[dict[str, Any]] = field(default_factory=list)
    v0_list: str = "410"
    card: bool = True
    is_host: bool = False
    spend_capped: bool = False
    credit_shown: tuple[int, float] = (-1, 0.0)
    """When the credit was last computed for the user's page, and what it was."""

    def __repr__(self) -> str:
        return f"<Account {self.name}: ${self.purse.credit:.2f}>"

    @property
    def key(self) -> str:
        """The first key: the one the tests use."""
        return self.keys[0].text
