"""A sample of the same with real processes and sockets: SIGKILL at each call that a job makes to the marketplace."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from jobs import reconcile
from jobs.context import use
from jobs.watch import watch
from tests.crash.schedules import at_stage
from tests.crash.world import World
from tests.fakes.vast.server import Served

pytestmark = pytest.mark.crash

CALLS = {
    "renting": ("deploy", ["PUT /api/v0/asks/{id}"]),
    "loading": ("watch", ["GET /api/v1/instances"]),
    "sealing": ("collect_logs", ["PUT /api/v0/instances/request_logs/{id}"]),
    "destroying": ("destroy", ["DELETE /api/v0/instances/{id}"]),
}
CUTS = [(stage, job, route) for stage, (job, routes) in CALLS.items() for route in routes]


class Killer:
    """Answers `route`, and kills the caller `when` (before | after) the call takes effect."""

    def __init__(self, world: World, route: str, when: str):
        self.pid = 0
        if when == "before":
            world.market.fault(route, "lie", only=self._before)
        else:
            world.market.fault(route, "change", change=self._after)

    def _before(self, _query: object) -> bool:
        os.kill(self.pid, signal.SIGKILL)
        return True

    def _after(self, body: object) -> object:
        os.kill(self.pid, signal.SIGKILL)
        return body


@pytest.fixture
def world_at() -> Iterator[Callable[[str], World]]:
    made: list[World] = []

    def make(stage: str) -> World:
        made.append(at_stage.__wrapped__(stage))
        return made[-1]

    yield make
    for world in made:
        world.remove()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("stage", "job", "route"), CUTS, ids=[stage for stage, _, _ in CUTS])
def test_a_worker_killed_at_a_call(
    world_at: Callable[[str], World], stage: str, job: str, route: str, when: str
) -> None:
    world = world_at(stage)
    world.pass_time(6.0)
    killer = Killer(world, route, when)
    served = Served(world.market, "127.0.0.1", 0)
    try:
        killer.pid = os.fork()
        if killer.pid == 0:
            _work(world, job, served.url)
        _, status = os.waitpid(killer.pid, 0)
    finally:
        served.close()
    assert os.WIFSIGNALED(status), f"it was to be killed, and ended with {status}"
    assert world.finish(to_rest=True) == []


def _work(world: World, job: str, url: str) -> None:
    """The worker: its own connections, the real transport; it does not survive."""
    world.become_worker(url)
    use(world.process)
    row = world.rows()[-1]
    if job == "watch":
        watch(world.process, "vast")
    else:
        reconcile.INLINE[job](row.id, row.job_attempt)
    time.sleep(30)
    os._exit(1)
