"""One stack for all scenarios: a start costs seconds. After each, everything is as it was, and invariants hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios import invariants
from tests.scenarios.world import World


@pytest.fixture(scope="session")
def running() -> Iterator[World]:
    world = World()
    try:
        world.start()
        yield world
    finally:
        world.end()


@pytest.fixture
def world(running: World) -> Iterator[World]:
    """The running stack; the scenario leaves it running and no run unfinished."""
    if running.up.process.poll() is not None:
        running.restart()  # one scenario that failed must not fail the others
    yield running
    assert running.up.process.poll() is None, running.up.output
    invariants.check(running)
