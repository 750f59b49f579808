"""The controller is gone for longer than the lease: the agent seals by itself, ends itself, and is believed later."""

from __future__ import annotations

import psutil
import pytest

from logs.wire import emergency_key
from tests.scenarios.runs import ask
from tests.scenarios.world import World, wait_for

pytestmark = [pytest.mark.scenario, pytest.mark.crash, pytest.mark.timeout(400)]

LEASE_S = 30


def ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_controller_gone_for_longer_than_the_lease(world: World) -> None:
    """The archive is up: the evidence comes by the emergency upload, and nothing of it is missing."""
    asked = ask(world, 2000, lease_s=LEASE_S)
    asked.proves(3)
    agent = asked.agent()
    prover = [asked.program("serve"), asked.program("bench")]
    key = emergency_key(asked.id, asked.instance().id)
    said = world.supervisorctl("stop", "app:*")
    assert "reconcile: stopped" in said
    gone = world.context.now_ms()
    wait_for("the agent ends itself", lambda: ended(agent), LEASE_S + 60)
    assert world.context.now_ms() - gone > 10_000  # it did wait
    assert all(ended(p) for p in prover)
    assert world.context.store.head(key).bytes > 0
    world.supervisorctl("start", "app:*")
    world.wait_until_runs("reconcile", 60)
    row = asked.ends(90)
    assert row.state == "failed"
    assert any(word in row.reason for word in ("lease", "vanished")), row.reason
    instance = asked.instance()
    assert (instance.state, instance.evidence) == ("destroyed", "complete"), instance.evidence_text
    assert instance.vanished_ms is not None
    setup = asked.text("setup")
    assert "the lease is not renewed" in setup
    assert "stops the stage: the lease could not be renewed" in setup
