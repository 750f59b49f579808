"""The whole controller is killed while a rented machine works: the bill ends by itself, within what was held."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.domain.runs import cancel_run
from logs.store import S3Config
from logs.wire import emergency_key
from tests.fakes.vast.app import serve
from tests.fakes.vast.boot import Boots, as_this_host
from tests.fakes.vast.market import Market
from tests.scenarios.runs import ask
from tests.scenarios.world import World, wait_for

pytestmark = [pytest.mark.scenario, pytest.mark.crash, pytest.mark.timeout(600)]

KEY = "account-key-of-the-scenario-0123456789abcdef"
LEASE_S = 30


@pytest.fixture
def market() -> Market:
    """Dear machines, so that seconds show in the bill."""
    market = Market(11, time.time_ns() // 1_000_000)
    market.add_account(KEY, 100.0)
    for _ in range(3):
        market.add_machine("H100 SXM", dollars_per_gpu_hour=40.0, reliability=0.999, cuda=13.0)
    as_this_host(market)
    market.pull_s = 2.0
    return market


@pytest.fixture
def rented(market: Market, s3_config: S3Config, tmp_path: Path) -> Iterator[World]:
    """A controller with an account at the marketplace, and an archive that outlives it."""
    with serve(market) as served:
        world = World(
            PROVEFLEET_VAST_URL=served.url,
            PROVEFLEET_VAST_API_KEY=KEY,
            PROVEFLEET_PAYLOAD_IMAGE="registry.example.com/payload@sha256:" + "0" * 64,
            PROVEFLEET_RENT_DISK_GB="8",
            PROVEFLEET_EVIDENCE_DEADLINE_S="20",
            PROVEFLEET_S3_ENDPOINT=s3_config.endpoint,
            PROVEFLEET_S3_BUCKET=s3_config.bucket,
            PROVEFLEET_S3_ACCESS_KEY_ID=s3_config.access_key_id,
            PROVEFLEET_S3_SECRET_ACCESS_KEY=s3_config.secret_access_key,
        )
        boots = Boots(market, tmp_path / "machines", world.kernels)
        try:
            world.start()
            yield world
        finally:
            boots.close()
            world.end()


def test_the_machine_seals_and_ends_itself_within_its_reservation(rented: World, market: Market) -> None:
    asked = ask(rented, 800, provider="vast", lease_s=LEASE_S, max_dollars=10.0, max_duration_s=3600)
    asked.proves(2, budget_s=240)
    row = asked.instance()
    assert row.provider_id is not None
    rental = market.instances[int(row.provider_id)]
    rented.kill_everything()
    killed = time.monotonic()

    wait_for("the instance ends itself", lambda: not rental.live, LEASE_S + 60)
    assert time.monotonic() - killed < LEASE_S + 60
    deletes = [seen.identity for seen in market.requests if seen.route.startswith("DELETE")]
    assert set(deletes) == {f"instance:{rental.id}"}, "with its own key"
    store = rented.context.store
    assert store.head(emergency_key(asked.id, row.id)).bytes > 0, "sealed before"
    assert 0 < market.bill(rental.id) <= row.reserved_dollars
    assert not market.live()

    rented.restart()
    wait_for("the first machine is accounted for", lambda: asked.instances()[0].state == "destroyed", 120)
    first = asked.instances()[0]
    assert first.evidence == "complete", first.evidence_text
    assert "stops the stage: the lease could not be renewed" in asked.text("setup", first)
    # The run goes on to another machine, for no more than was left of what was held. Enough is enough.
    cancel_run(rented.context, asked.id, "tester", "the scenario is over")
    asked.ends(120)
    assert not market.live()
    assert not market.double_rentals()
    assert sum(market.bill(number) for number in market.instances) <= row.reserved_dollars
