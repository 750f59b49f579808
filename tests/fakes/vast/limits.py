"""How often one may ask: a minimum interval per route and identity, and the daily quota of searches."""

from __future__ import annotations

from dataclasses import dataclass

DAY_MS = 86_400_000
# Seconds between two calls, as documented; a route that isn't here has no documented threshold.
THRESHOLDS_S = {
    "POST /api/v0/bundles": 6.0,
    "PUT /api/v0/asks/{id}": 4.5,
    "PUT /api/v0/launch_instance": 5.0,
    "GET /api/v1/instances": 1.0,
    "GET /api/v0/instances/{id}": 2.0,
    "PUT /api/v0/instances/{id}": 1.0,
    "DELETE /api/v0/instances/{id}": 3.0,
    "PUT /api/v0/instances/reboot/{id}": 1.0,
    "PUT /api/v0/instances/recycle/{id}": 1.0,
    "PUT /api/v0/instances/bid_price/{id}": 5.5,
    "PUT /api/v0/instances/command/{id}": 1.5,
    "DELETE /api/v0/instances/{id}/ssh/{key_id}": 2.0,
    "POST /api/v0/ssh": 1.0,
    "GET /api/v0/charges": 1.0,
    "GET /api/v1/invoices": 3.0,
    "GET /api/v0/instances/balance/{id}": 3.0,
    "GET /api/v0/benchmarks": 3.0,
}
# How long a route stays closed for somebody who came too early.
PENALTIES_S = {"PUT /api/v0/asks/{id}": 12.0}
SEARCHES = frozenset(("POST /api/v0/bundles", "PUT /api/v0/search/asks"))
FORMS = ("text", "detail", "error")


@dataclass(frozen=True, slots=True)
class Violation:
    """A call that came too early, or something else that a client must not do."""

    what: str
    route: str
    identity: str
    at_ms: int
    after_s: float = 0.0
    threshold_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TooMany:
    """A 429: which of its forms, and for how long the route stays closed."""

    form: str
    threshold_s: float
    wait_s: float
    reset_s: int | None = None
    retry_after: str = ""


class Limits:
    """`enforce` False still notes each violation. `form` None takes the three forms in turn.

    `retry_after` says where a 429 tells how long to wait: '' (nowhere), 'header' or 'body'.
    `search_quota` is the number of searches a day and address, None without one.
    """

    def __init__(self) -> None:
        self.enforce = True
        self.form: str | None = None
        self.retry_after = ""
        self.search_quota: int | None = None
        self.thresholds_s = dict(THRESHOLDS_S)
        self.violations: list[Violation] = []
        self.refusals = 0
        self._last_ms: dict[tuple[str, str], int] = {}
        self._closed_until_ms: dict[tuple[str, str], int] = {}
        self._searches: dict[tuple[str, int], int] = {}

    def check(self, route: str, identity: str, address: str, now_ms: int) -> TooMany | None:
        """Count one call. The refusal, if it comes too early."""
        if route in SEARCHES:
            over = self._quota(address, now_ms)
            if over is not None:
                return over
            identity = address
        threshold_s = self.thresholds_s.get(route, 0.0)
        if not threshold_s:
            return None
        who = (route, identity)
        last_ms = self._last_ms.get(who)
        closed_ms = self._closed_until_ms.get(who, 0)
        early = last_ms is not None and now_ms - last_ms < threshold_s * 1000
        if early or now_ms < closed_ms:
            after_s = (now_ms - (last_ms or now_ms)) / 1000
            self.violations.append(Violation("too early", route, identity, now_ms, after_s, threshold_s))
            if self.enforce:
                if early and route in PENALTIES_S:
                    closed_ms = max(closed_ms, now_ms + round(PENALTIES_S[route] * 1000))
                    self._closed_until_ms[who] = closed_ms
                opens_ms = max(closed_ms, (last_ms or now_ms) + round(threshold_s * 1000))
                return self.too_many(threshold_s, (opens_ms - now_ms) / 1000)
        self._last_ms[who] = now_ms
        return None

    def too_many(self, threshold_s: float, wait_s: float) -> TooMany:
        form = self.form or FORMS[self.refusals % len(FORMS)]
        self.refusals += 1
        return TooMany(form, threshold_s, wait_s, retry_after=self.retry_after)

    def _quota(self, address: str, now_ms: int) -> TooMany | None:
        if self.search_quota is None:
            return None
        day = now_ms // DAY_MS
        used = self._searches.get((address, day), 0)
        if used >= self.search_quota:
            reset_s = (day + 1) * DAY_MS // 1000
            return TooMany("quota", 0.0, reset_s - now_ms / 1000, reset_s)
        self._searches[address, day] = used + 1
        return None
