"""A controller on the fake Vast.ai, on SQLite: what differs between databases has its tests elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from pydantic import SecretStr

from jobs.context import Context, use
from logs.store import Store
from tests.fakes.vast.market import Market
from tests.jobs.market.vast_scene import SETTINGS, VastScene
from tests.jobs.market.wire import KEY
from tests.jobs.scene import Clock


@pytest.fixture
def vast_market(clock: Clock) -> Market:
    """Eight machines that fit, of one GPU each."""
    market = Market(seed=11, now_ms=clock)
    for n in range(8):
        market.add_machine("RTX 4090", dollars_per_gpu_hour=0.30 + 0.01 * n, cuda=13.0)
    return market


@pytest.fixture
def vast_scene(
    make_context: Callable[..., Context],
    store: Store,
    clock: Clock,
    vast_market: Market,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[VastScene]:
    context = make_context(vast_api_key=SecretStr(KEY), **SETTINGS)
    context.store = store
    caplog.set_level(logging.ERROR, "jobs.context")  # there is no Redis here, which it says each time
    use(context)
    yield VastScene(context, clock, vast_market)
    use(None)
