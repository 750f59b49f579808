"""Without a fault: what every other scenario is compared with."""

from __future__ import annotations

import pytest

from jobs.queue import queue
from jobs.tidy import GONE
from tests.scenarios import invariants
from tests.scenarios.runs import ask
from tests.scenarios.world import World, wait_for

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(400)]


def test_a_benchmark_passes_and_leaves_nothing_but_evidence(world: World) -> None:
    asked = ask(world, circuit="chain/1024/bls12381")
    asked.reaches("benchmarking", budget_s=240)  # the very first one makes the key, and compiles
    folder = asked.folder()
    asked.proves(1, budget_s=240)
    asked.ends(90)
    asked.passed_all()
    instance = asked.instance()
    checked = invariants.bundle_checks(invariants.bundle_of(world, instance))
    for name in ("manifest.json", "streams/bench.log", "artifacts/proofs.json", "artifacts/proofs/1-5/proof.json"):
        assert f"{name}: OK" in checked
    assert not folder.exists()

    witnesses = f"witnesses/{asked.id}/"
    queue(world.context, "lifecycle").enqueue("jobs.tidy.tidy")  # what cron does each minute
    wait_for("the witnesses are deleted", lambda: asked.row().stage == GONE, 70)
    assert list(world.context.store.list(witnesses)) == []
    assert "wtns" not in " ".join(checked.splitlines())
