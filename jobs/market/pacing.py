"""Keeping the distance that a marketplace asks for between two calls of one route, over all our processes.

The slots are in Redis. While it can't be had, each process keeps its own distance, and the marketplace's "too frequent"
does the rest. Redis holds no truth here either: losing it costs one early call.
"""

from __future__ import annotations

import hashlib
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

# A slot further ahead than any pause a marketplace may ask for comes from a clock that has jumped back since.
MAX_AHEAD_MS = 26 * 3600 * 1000

# KEYS[1]: when the route is free. ARGV: now, interval, patience, most (ms). Takes the next slot if it is near enough.
_TAKE = """
local now, interval, patience = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local free = tonumber(redis.call('GET', KEYS[1]) or '0')
if free < now or free > now + tonumber(ARGV[4]) then free = now end
if free - now <= patience then
  redis.call('SET', KEYS[1], string.format('%.0f', free + interval), 'PX', free + interval - now + 60000)
end
return string.format('%.0f', free - now)
"""

# KEYS[1], ARGV: now, until (ms). Never brings a route forward.
_BLOCK = """
local now, untill = tonumber(ARGV[1]), tonumber(ARGV[2])
local free = tonumber(redis.call('GET', KEYS[1]) or '0')
if free < untill then
  redis.call('SET', KEYS[1], string.format('%.0f', untill), 'PX', untill - now + 60000)
end
return '0'
"""


_lock = threading.Lock()


class Busy(Exception):
    """The route is taken for longer than the caller would wait; nothing was sent. `wait_s`: when it is free."""

    def __init__(self, route: str, wait_s: float):
        super().__init__(f"the next call of {route} is {wait_s:.0f} s away")
        self.wait_s = wait_s


class Pacer:
    """The clock of one account's routes.

    `identity` is whom the marketplace counts for; Redis gets a digest of it. `paced` is the memory while Redis is away:
    hand in the same dict for all pacers of a process.
    """

    def __init__(
        self,
        redis: Redis | None,
        identity: str,
        now_ms: Callable[[], int],
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
        paced: dict[str, int] | None = None,
    ):
        self._redis = redis
        self._prefix = f"provefleet:pace:{hashlib.sha256(identity.encode()).hexdigest()[:16]}:"
        self._now_ms = now_ms
        self._sleep = sleep
        self._rng = rng or random.Random()  # noqa: S311 - spreads calls, guards nothing
        self._paced = {} if paced is None else paced

    def wait(self, route: str, interval_s: float, patience_s: float) -> None:
        """Take the next slot of `route`, and sleep until it comes.

        `interval_s` is kept until the slot after it. Raises `Busy`, with no slot taken, when it is more than
        `patience_s` away.
        """
        wait_ms = self._take(self._prefix + route, round(interval_s * 1000), round(patience_s * 1000))
        if wait_ms > patience_s * 1000:
            raise Busy(route, wait_ms / 1000)
        if wait_ms > 0:
            # Up to 2 % later than asked: clocks of two hosts differ, and nobody wakes to the millisecond.
            self._sleep(wait_ms / 1000 + self._rng.uniform(0.0, 0.02 * interval_s))

    def penalty(self, route: str, seconds: float) -> None:
        """Nobody calls `route` for `seconds` from now."""
        now = self._now_ms()
        until = now + min(round(seconds * 1000), MAX_AHEAD_MS)
        key = self._prefix + route
        self._paced[key] = max(self._paced.get(key, 0), until)
        if self._redis is not None:
            try:
                self._redis.eval(_BLOCK, 1, key, now, until)
            except (RedisError, OSError) as error:
                log.debug("pacing without Redis: %s", type(error).__name__)

    def _take(self, key: str, interval_ms: int, patience_ms: int) -> int:
        now = self._now_ms()
        if self._redis is not None:
            try:
                return int(self._redis.eval(_TAKE, 1, key, now, interval_ms, patience_ms, MAX_AHEAD_MS))
            except (RedisError, OSError) as error:
                log.debug("pacing without Redis: %s", type(error).__name__)
        with _lock:
            free = self._paced.get(key, 0)
            if not now <= free <= now + MAX_AHEAD_MS:
                free = now
            if free - now <= patience_ms:
                self._paced[key] = free + interval_ms
        return free - now
