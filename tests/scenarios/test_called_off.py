"""An operator calls it off in the middle: cancel, destroy, destroy by force."""

from __future__ import annotations

import pytest

from jobs.domain.instances import DestroyRefused, request_destroy
from jobs.domain.runs import cancel_run
from tests.scenarios import invariants
from tests.scenarios.runs import ask
from tests.scenarios.world import World, wait_for

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(300)]

MANY = 60


def test_cancel_and_the_destroy_button_in_the_middle_of_a_benchmark(world: World) -> None:
    """Two runs at a time; both seal before they are destroyed."""
    cancelled, destroyed = ask(world, MANY), ask(world, MANY)
    cancelled.proves(2)
    assert cancel_run(world.context, cancelled.id, "ann", "the price went up")
    assert not cancel_run(world.context, cancelled.id, "ann", "twice")
    destroyed.proves(2)
    request_destroy(world.context, destroyed.instance().id, "ann", "it is the wrong key")
    for asked, word in ((cancelled, "the price went up"), (destroyed, "it is the wrong key")):
        row = asked.ends(60)
        assert (row.state, word in row.reason) == ("cancelled", True), row.reason
        instance = asked.instance()
        assert (instance.state, instance.evidence) == ("destroyed", "complete"), instance.evidence_text
        assert "stops the stage" in asked.text("setup")
        invariants.bundle_checks(invariants.bundle_of(world, instance))
    with pytest.raises(DestroyRefused):
        request_destroy(world.context, destroyed.instance().id, "ann", "again", force=True)


def test_cancel_while_queued_and_destroy_by_force(world: World) -> None:
    forced = ask(world, MANY)
    queued = ask(world, MANY)
    assert cancel_run(world.context, queued.id, "ann", "a slip of the finger")
    forced.proves(2)
    wait_for("the first lines of the bench", lambda: forced.text("bench"), 10)  # they leave within 2 s
    request_destroy(world.context, forced.instance().id, "ann", "it mines coins", force=True)
    row = forced.ends(60)
    assert row.state == "cancelled"
    instance = forced.instance()
    assert (instance.state, instance.forced_by) == ("destroyed", "ann")
    assert instance.evidence_gap is not None
    assert "it mines coins" in instance.evidence_gap
    assert forced.text("bench")  # what had come before stays
    assert queued.ends(60).state == "cancelled"
    assert all(i.rented_ms is None or i.state == "destroyed" for i in queued.instances())
