"""Pacing: one distance between calls, whoever makes them, with Redis and without."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable

import pytest
from redis import Redis

from jobs.market.pacing import Busy, Pacer
from tests.fakes.valkey import ValkeyServer
from tests.jobs.scene import NO_REDIS, Clock

KEY = "https://console.vast.ai secret-key"


@pytest.fixture
def redis(valkey_server: ValkeyServer) -> Redis:
    client = Redis.from_url(valkey_server.url)
    client.flushall()
    return client


class Sleeper:
    def __init__(self, clock: Clock):
        self.clock, self.slept = clock, []

    def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)


@pytest.fixture(params=["redis", "redis down", "no redis"])
def make(request: pytest.FixtureRequest, clock: Clock) -> Callable[..., Pacer]:
    """Pacers of one process, on one clock."""
    clients = {
        "redis": lambda: request.getfixturevalue("redis"),
        "redis down": lambda: Redis.from_url(NO_REDIS),
        "no redis": lambda: None,
    }
    client = clients[request.param]()
    paced: dict[str, int] = {}

    def pacer(identity: str = KEY) -> Pacer:
        return Pacer(client, identity, clock, Sleeper(clock), random.Random(1), paced)

    return pacer


def test_calls_of_one_route_keep_their_distance_whoever_makes_them(make: Callable[..., Pacer], clock: Clock) -> None:
    times = []
    for pacer in (make(), make(), make()):
        pacer.wait("create", 4.5, 60)
        times.append(clock())
    assert times[1] - times[0] >= 4500
    assert times[2] - times[1] >= 4400  # the second woke a little late, the third need not
    assert times[2] - times[0] <= 9300


def test_routes_and_accounts_do_not_wait_for_each_other(make: Callable[..., Pacer], clock: Clock) -> None:
    begun = clock()
    make().wait("create", 4.5, 60)
    make().wait("list", 1.0, 60)
    make("another account").wait("create", 4.5, 60)
    assert clock() == begun


def test_who_would_wait_too_long_takes_no_slot(make: Callable[..., Pacer], clock: Clock) -> None:
    make().wait("search", 6.0, 0)
    for _ in range(3):
        with pytest.raises(Busy, match="search is 6 s away") as busy:
            make().wait("search", 6.0, 5.0)
        assert busy.value.wait_s == pytest.approx(6.0)
    clock.advance(6.0)
    before = clock()
    make().wait("search", 6.0, 0)
    assert clock() == before


def test_a_penalty_holds_everybody_up_and_none_shortens_another(make: Callable[..., Pacer], clock: Clock) -> None:
    make().penalty("create", 30.0)
    make().penalty("create", 5.0)
    begun = clock()
    make().wait("create", 4.5, 60)
    assert 30_000 <= clock() - begun <= 30_200


def test_a_clock_that_jumped_back_locks_nobody_out(make: Callable[..., Pacer], clock: Clock) -> None:
    clock.advance(40 * 3600)
    make().wait("list", 1.0, 0)
    clock.advance(-40 * 3600)
    before = clock()
    make().wait("list", 1.0, 0)
    assert clock() == before


def test_the_key_is_not_in_redis(redis: Redis, clock: Clock) -> None:
    pacer = Pacer(redis, KEY, clock, Sleeper(clock))
    pacer.wait("list", 1.0, 0)
    pacer.penalty("create", 5.0)
    names = redis.keys()
    assert len(names) == 2
    assert not any(b"secret" in name or b"vast.ai" in name for name in names)
    assert all(0 < redis.pttl(name) <= 70_000 for name in names), "they go away by themselves"


def test_losing_redis_costs_one_early_call(redis: Redis, clock: Clock) -> None:
    pacer = Pacer(redis, KEY, clock, Sleeper(clock))
    pacer.wait("list", 1.0, 0)
    redis.flushall()
    pacer.wait("list", 1.0, 0)
    with pytest.raises(Busy):
        pacer.wait("list", 1.0, 0)


def _call(url: str, times: int, seen: multiprocessing.Queue[int]) -> None:
    pacer = Pacer(Redis.from_url(url), KEY, lambda: time.time_ns() // 1_000_000)
    for _ in range(times):
        pacer.wait("create", 0.1, 30)
        seen.put(time.monotonic_ns())


def test_processes_share_one_distance(valkey_server: ValkeyServer, redis: Redis) -> None:
    context = multiprocessing.get_context("spawn")
    seen: multiprocessing.Queue[int] = context.Queue()
    processes = [context.Process(target=_call, args=(valkey_server.url, 4, seen)) for _ in range(3)]
    for process in processes:
        process.start()
    times = sorted(seen.get(timeout=60) for _ in range(12))
    for process in processes:
        process.join()
        assert process.exitcode == 0
    # Twelve calls, eleven distances: what the machine's own scheduler adds to one it takes from none of the sum.
    assert times[-1] - times[0] >= 11 * 0.098e9
