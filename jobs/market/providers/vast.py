"""Provider `vast`: machines of strangers, rented by the hour on Vast.ai. docs/vast.md says what to set up.

A thin client of our own, since the official package sends creates again when their answer is lost. It keeps no state;
what is true of our rentals is what the list says.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jobs.market.pacing import Pacer
from jobs.market.providers import vast_instances, vast_logs, vast_money, vast_offers, vast_rent
from jobs.market.providers.base import (
    STOPPED,
    AccountFacts,
    ChargeFacts,
    Listing,
    OfferFacts,
    Order,
    ProviderInstance,
    ProviderUnavailable,
)
from jobs.market.providers.vast_http import DESTROY, VastHttp
from jobs.settings import Settings

if TYPE_CHECKING:
    import httpx
    from redis import Redis

_GONE = ("no_such_instance", "not_found")


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class VastProvider:
    """See `base.Provider`. `transport` stands in for the network; `paced` is what pacing remembers without Redis.

    `http` is what it talks with, for a closer look. Without `vast_api_key` each call raises `base.KeyRefused`, which
    says what to set.
    """

    name = "vast"
    remote = True
    bills = True

    def __init__(
        self,
        settings: Settings,
        *,
        redis: Redis | None,
        now_ms: Callable[[], int] = _wall_clock_ms,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
        transport: httpx.BaseTransport | None = None,
        paced: dict[str, int] | None = None,
    ):
        rng = rng or random.Random()  # noqa: S311 - spreads calls, guards nothing
        key = settings.vast_api_key.get_secret_value()
        pacer = Pacer(redis, f"{settings.vast_url} {key}", now_ms, sleep, rng, paced)
        self._settings = settings
        self._now_ms = now_ms
        self._sleep = sleep
        self.http = VastHttp(settings.vast_url, key, pacer, now_ms, rng, transport)

    def scan(self) -> list[OfferFacts]:
        """The cheapest machines that fit the payload image; see `vast_offers`. Takes 7 s for each 64 of them."""
        return vast_offers.scan(self.http, self._settings)

    def rent(self, order: Order) -> str:
        """Sent once; again only where "too frequent" says that nothing was done."""
        return vast_rent.rent(self.http, order, self._settings.vast_url)

    def list(self) -> Listing:
        """All pages. Where a machine is stopped, the account says whether that was for lack of money."""
        listing = vast_instances.walk(self.http, self._now_ms())
        if not any(i.status == STOPPED for i in listing.instances) or not self._is_broke():
            return listing
        return dataclasses.replace(listing, instances=[_stopped_for_money(i) for i in listing.instances])

    def request_logs(self, provider_id: str) -> dict[str, Any]:
        """Asks for the container's log."""
        return vast_logs.request(self.http, provider_id, self._now_ms)

    def fetch_logs(self, ticket: dict[str, Any], max_bytes: int) -> dict[str, bytes]:
        """The container's log; then, within some seconds, the host daemon's."""
        return vast_logs.fetch(self.http, ticket, max_bytes, self._settings.vast_url, self._now_ms, self._sleep)

    def destroy(self, provider_id: str) -> None:
        """DELETE. Only "no such instance" counts as gone: a wrong key answers 404 too, and says so."""
        answer = self.http.call(DESTROY, item=provider_id, body={})
        if not answer.good and answer.code not in _GONE:
            raise self.http.unusable(DESTROY, answer)

    def account(self) -> AccountFacts | None:
        """The credit left."""
        return vast_money.account(self.http)

    def charges(self, begin_ms: int, end_ms: int) -> Sequence[ChargeFacts]:
        """The bill, by rental and kind."""
        return vast_money.charges(self.http, begin_ms, end_ms)

    def _is_broke(self) -> bool:
        try:
            return vast_money.account(self.http).credit_dollars < 0.005
        except ProviderUnavailable:
            return False


def _stopped_for_money(instance: ProviderInstance) -> ProviderInstance:
    if instance.stopped_why in ("", "expired"):
        return instance
    return dataclasses.replace(instance, stopped_why="no_credit")
