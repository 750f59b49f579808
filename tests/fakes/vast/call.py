"""One request as the handlers see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.fakes.vast.accounts import Account, Key
from tests.fakes.vast.errors import Refused
from tests.fakes.vast.instances import Instance

if TYPE_CHECKING:
    from tests.fakes.vast.market import Market


@dataclass(slots=True)
class Call:
    """`numbers` are the ids in the path, `body` the JSON that was sent, None for none."""

    market: Market
    route: str
    key: Key | None
    numbers: list[int]
    query: dict[str, str]
    body: Any

    @property
    def account(self) -> Account:
        assert self.key is not None
        return self.key.account

    @property
    def fields(self) -> dict[str, Any]:
        """The body as an object. Raises `Refused` (400)."""
        if not isinstance(self.body, dict):
            raise Refused(400, "invalid_request", "Invalid json body")
        return self.body

    def instance(self, *, write: bool = False) -> Instance:
        """The instance that the path names. Raises `Refused` (404) for one that isn't there or isn't the caller's."""
        return self.find(self.numbers[0], write=write)

    def find(self, number: int, *, write: bool = False) -> Instance:
        i = self.account.live.get(number)
        if i is None:
            raise Refused(404, "no_such_instance", f"Instance {number} not found.")
        if write:
            i.touched.append(f"{self.route.replace('{id}', str(number))}")
        return i
