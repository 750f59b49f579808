"""What a process of the control plane holds: settings, database, Redis, the archive, the clock.

Built once a process and passed on, so that tests hand in their own clock and services.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session, sessionmaker

from jobs.domain.db import database_url, make_engine, make_sessions
from jobs.settings import Settings, load_settings

if TYPE_CHECKING:
    from httpx import BaseTransport
    from redis import Redis
    from sqlalchemy import Engine

    from jobs.market.providers.base import Provider
    from logs.store import Store

log = logging.getLogger(__name__)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Context:
    """Everything a job, a page or reconcile may reach. Connections are opened at first use.

    `providers` stand in for the real ones of the same name; empty but in tests, as is `vast_transport`, which
    carries what would go to the marketplace. `paced` is what `jobs.market.pacing` remembers while Redis is down.
    """

    def __init__(
        self,
        settings: Settings,
        now_ms: Callable[[], int] = wall_clock_ms,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.settings = settings
        self.now_ms = now_ms
        self.sleep = sleep
        self.providers: dict[str, Provider] = {}
        self.vast_transport: BaseTransport | None = None
        self.paced: dict[str, int] = {}

    @cached_property
    def engine(self) -> Engine:
        return make_engine(database_url(self.settings))

    @cached_property
    def sessions(self) -> sessionmaker[Session]:
        return make_sessions(self.engine)

    @cached_property
    def store(self) -> Store:
        from logs.store import S3Config, Store

        s = self.settings
        return Store(
            S3Config(
                endpoint=s.s3_endpoint,
                bucket=s.s3_bucket,
                region=s.s3_region,
                access_key_id=s.s3_access_key_id,
                secret_access_key=s.s3_secret_access_key.get_secret_value(),
                public_endpoint=s.s3_public_endpoint or s.s3_endpoint,
            )
        )

    @cached_property
    def redis(self) -> Redis:
        from redis import Redis

        return Redis.from_url(self.settings.redis_url.get_secret_value(), socket_timeout=5, socket_connect_timeout=2)

    @cached_property
    def tail_redis(self) -> Redis:
        """A client that gives up within a second: the live view must never hold anything up."""
        from logs import tail

        client: Redis = tail.connect(self.settings.redis_url.get_secret_value())
        return client

    def enqueue(self, job: str, row_id: str, attempt: int) -> None:
        """Wake a worker for a row. With Redis away nothing is lost: the row's `wake_at_ms` brings reconcile to it."""
        from jobs import queue

        try:
            queue.enqueue(self, job, row_id, attempt)
        except queue.QueueUnavailable as error:
            log.warning("%s of %s waits for reconcile: %s", job, row_id, error)

    def new_id(self) -> str:
        """128 random bits: ids name rows and objects, and can't be guessed."""
        return secrets.token_hex(16)


_lock = threading.Lock()
_current: Context | None = None


def current() -> Context:
    """The context of this process, from the environment and the state folder."""
    global _current
    with _lock:
        if _current is None:
            _current = Context(load_settings())
        return _current


def use(context: Context | None) -> None:
    """Replace the context of this process (a forked worker, a test)."""
    global _current
    with _lock:
        _current = context
