"""Renting: once, whatever crashes, and nothing that costs money is forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from jobs.deploy import deploy
from jobs.domain.runs import cancel_run
from jobs.domain.work import CLAIM_S
from jobs.market.providers.base import ProviderUnavailable, RentalRefused
from tests.fakes.market import lost
from tests.jobs.scene import Scene


class WorkerDied(BaseException):
    """What a SIGKILL at this place would be: nothing after it runs (but this process must go on)."""


def die() -> None:
    raise WorkerDied


def refuse() -> None:
    raise RentalRefused("no credit left")


def deploy_and_die(scene: Scene, instance_id: str) -> None:
    with pytest.raises(WorkerDied):
        deploy(instance_id, 1)


def test_the_intent_is_on_record_before_the_call(scene: Scene) -> None:
    _, instance_id = scene.placed()
    seen: list[int | None] = []
    scene.market.on("rent", "before", lambda: seen.append(scene.instance(instance_id).rent_sent_ms))
    deploy(instance_id, 1)
    assert seen == [scene.clock()]
    instance = scene.instance(instance_id)
    assert (instance.state, instance.rented_ms) == ("loading", scene.clock())
    assert scene.market.sold == [instance.label]
    env = scene.market.envs[instance.label]
    assert env["PROVEFLEET_AGENT_URL"].startswith("http")
    # The token is kept only as a hash.
    assert env["PROVEFLEET_BOOTSTRAP_TOKEN"] not in str(vars(instance))
    assert len(instance.bootstrap_sha256) == 64


def test_delivered_twice_it_rents_once(scene: Scene) -> None:
    _, instance_id = scene.placed()
    for attempt in (1, 1, 2):
        deploy(instance_id, attempt)
    assert len(scene.market.sold) == 1


def test_a_lost_answer_is_found_by_the_label(scene: Scene) -> None:
    _, instance_id = scene.placed()
    scene.market.on("rent", "after", lost)
    deploy(instance_id, 1)
    assert scene.instance(instance_id).state == "renting"
    scene.tick_until(lambda: scene.instance(instance_id).state == "loading")
    assert len(scene.market.sold) == 1
    assert scene.instance(instance_id).provider_id is not None
    # It is paid from the moment that the order left us.
    assert scene.instance(instance_id).rented_ms == scene.instance(instance_id).rent_sent_ms


def test_a_lost_order_is_proven_by_two_lists_and_the_run_goes_on(scene: Scene) -> None:
    run_id, instance_id = scene.placed()
    scene.market.on("rent", "before", lost)
    deploy(instance_id, 1)
    scene.tick(3)
    assert scene.instance(instance_id).state == "renting"  # one list is not enough
    scene.tick_until(lambda: scene.instance(instance_id).state == "not_rented")
    assert scene.market.sold == []
    assert scene.run(run_id).state == "active"
    assert scene.run(run_id).wake_at_ms is not None


def test_a_partial_list_proves_nothing(scene: Scene) -> None:
    _, instance_id = scene.placed()
    scene.market.on("rent", "before", lost)
    scene.market.complete = False
    deploy(instance_id, 1)
    scene.tick(times=40)
    assert scene.instance(instance_id).state == "renting"
    assert scene.instance(instance_id).absent_lists == 0
    scene.market.complete = True
    scene.tick_until(lambda: scene.instance(instance_id).state == "not_rented")
    assert scene.market.calls["rent"] == 1


def test_a_provider_that_is_down_is_waited_for(scene: Scene) -> None:
    _, instance_id = scene.placed()
    scene.market.on("rent", "before", lost)
    scene.market.on("list", "before", *[lost] * 30)
    deploy(instance_id, 1)
    scene.tick(times=10)
    assert scene.instance(instance_id).state == "renting"
    assert "connection reset" in scene.instance(instance_id).provider_status
    assert len(scene.events("provider.unavailable")) == 1
    scene.tick_until(lambda: scene.instance(instance_id).state == "not_rented", 120)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_dies_in_the_call_is_followed_by_one_that_looks(scene: Scene, when: str) -> None:
    _, instance_id = scene.placed()
    scene.market.on("rent", when, die)
    deploy_and_die(scene, instance_id)
    scene.tick_until(lambda: scene.instance(instance_id).state in ("loading", "not_rented"))
    assert scene.instance(instance_id).state == ("loading" if when == "after" else "not_rented")
    assert len(scene.market.sold) == (1 if when == "after" else 0)
    assert scene.market.calls["rent"] == 1


def test_a_worker_that_dies_while_looking(scene: Scene) -> None:
    _, instance_id = scene.placed()
    scene.market.on("rent", "after", lost)
    scene.market.on("list", "before", die)
    deploy(instance_id, 1)
    scene.clock.advance(3)
    deploy_and_die(scene, instance_id)
    scene.tick_until(lambda: scene.instance(instance_id).state == "loading")
    assert len(scene.market.sold) == 1


def test_an_offer_that_is_gone_leads_to_the_next(scene: Scene) -> None:
    scene.market.offer("o1", 0.36)
    scene.market.offer("o2", 0.72)
    run_id, first = scene.placed()
    scene.market.withdraw("o1")
    deploy(first, 1)
    assert scene.instance(first).state == "not_rented"
    assert scene.run(run_id).stage == "looking for another offer"
    scene.clock.advance(61)  # the last scan is old: prepare looks again
    from jobs.prepare import prepare

    prepare(run_id, 2)
    assert scene.instance_of(run_id).offer_id == "o2"
    assert scene.run(run_id).rentals == 2


def test_a_refusal_is_final(scene: Scene) -> None:
    run_id, instance_id = scene.placed()
    scene.market.on("rent", "before", refuse)
    deploy(instance_id, 1)
    assert scene.instance(instance_id).state == "not_rented"
    assert scene.run(run_id).state == "failed"
    assert "no credit left" in scene.run(run_id).reason


def test_a_run_cancelled_in_doubt_is_found_sealed_and_destroyed(scene: Scene) -> None:
    run_id, instance_id = scene.placed()
    scene.market.on("rent", "after", lost)
    deploy(instance_id, 1)
    assert cancel_run(scene.context, run_id, "anna", "no")
    scene.tick_until(lambda: scene.instance(instance_id).state == "destroyed")
    assert scene.market.labels == []
    assert len(scene.market.sold) == 1


@pytest.mark.parametrize("lag_s", [1, 10])
def test_a_rental_that_is_listed_late_is_never_left_running(scene: Scene, lag_s: int) -> None:
    """The marketplace lists it only after a while: within our two lists, or long after we took it for not rented."""
    _, instance_id = scene.placed()
    scene.market.appears_after_ms = lag_s * 1000
    scene.market.on("rent", "after", lost)
    deploy(instance_id, 1)
    scene.market.withdraw("o1")
    scene.tick(times=20)
    if lag_s == 1:
        assert scene.instance(instance_id).state == "loading"
        return
    assert scene.instance(instance_id).state == "not_rented"
    scene.tick_until(lambda: scene.market.labels == [])
    scene.tick_until(lambda: all(i.state in ("destroyed", "not_rented") for i in scene.instances()))
    adopted = next(i for i in scene.instances() if i.id != instance_id)
    assert (adopted.state, adopted.run_id) == ("destroyed", None)
    assert adopted.evidence_sha256 is not None


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_claim_is_held_for_as_long_as_the_create_takes(scene: Scene) -> None:
    """So that nobody concludes from two lists that it failed while it is on its way."""
    _, instance_id = scene.placed()
    held_until: list[int] = []

    def slowly() -> None:
        scene.clock.advance(CLAIM_S - 1)
        deadline = time.monotonic() + CLAIM_S / 2
        while scene.instance(instance_id).claim_until_ms == scene.clock() + 1000 and time.monotonic() < deadline:
            time.sleep(0.1)
        held_until.append(scene.instance(instance_id).claim_until_ms or 0)

    scene.market.on("rent", "before", slowly)
    deploy(instance_id, 1)
    assert held_until == [scene.clock() + CLAIM_S * 1000]
    assert scene.instance(instance_id).state == "loading"


KILLED = """
import os, signal, sys
from tests.jobs.crash import context_of
from jobs.deploy import deploy
context = context_of(sys.argv[1])
context.providers["local"].on("rent", sys.argv[3], lambda: os.kill(os.getpid(), signal.SIGKILL))
deploy(sys.argv[2], 1)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_sigkill_for_real(scene: Scene, when: str) -> None:
    from tests.jobs.crash import describe

    _, instance_id = scene.placed()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, describe(scene), instance_id, when],
        cwd=os.getcwd(), capture_output=True, timeout=60,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-1000:]
    assert scene.instance(instance_id).state == "renting"
    scene.tick_until(lambda: scene.instance(instance_id).state in ("loading", "not_rented"))
    assert scene.instance(instance_id).state == ("loading" if when == "after" else "not_rented")
    assert len(scene.market.sold) == (1 if when == "after" else 0)


def test_an_unnamed_error_lets_go_and_leaves_doubt(scene: Scene) -> None:
    _, instance_id = scene.placed()

    def bug() -> None:
        raise KeyError("a field that was never there")

    scene.market.on("rent", "after", bug)
    with pytest.raises(KeyError):
        deploy(instance_id, 1)
    assert scene.instance(instance_id).claim_token is None
    scene.tick_until(lambda: scene.instance(instance_id).state == "loading")
    assert len(scene.market.sold) == 1


def test_lost_is_the_provider_error_that_means_doubt() -> None:
    with pytest.raises(ProviderUnavailable):
        lost()
