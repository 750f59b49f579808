"""The nasty cases of the marketplace that are about its answers: destroys, logs, lists, searches, clocks, the database.

See `test_nasty_machines.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from jobs.domain.db import make_engine, make_sessions
from jobs.market.providers.base import ProviderUnavailable
from jobs.scan import refresh
from tests.fakes.vast import scenarios
from tests.jobs.market.vast_scene import VastScene

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.fixture
def scene(vast_scene: VastScene, caplog: pytest.LogCaptureFixture) -> Any:
    """The scene; its invariants are checked when the test is through."""
    yield vast_scene
    vast_scene.check(caplog.text)


@pytest.mark.crash
@pytest.mark.parametrize("case", ["N23:500", "N23:429", "N23:timeout", "N23:success_false", "N23:reappears"])
def test_a_destroy_that_fails_is_repeated_until_it_is_proven(scene: VastScene, case: str) -> None:
    scene.market.scenario(case)
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    [machine] = scene.machines_of(run_id)
    assert machine.state == "destroyed"
    scene.tick(times=6)  # one that comes back after all is an orphan
    scene.until(scene.at_rest)
    assert scene.market.live(scene.ours) == []
    assert scene.deletes() >= 2
    assert scene.kinds().count("instance.adopted") == (case == "N23:reappears")


@pytest.mark.crash
def test_a_destroy_refused_for_the_key_is_no_success(scene: VastScene) -> None:
    """N24: a 404 about the key leaves it in `destroying`, and calls for an operator."""
    scene.market.scenario("N24", times=3)
    run_id = scene.request()
    scene.until(lambda: "provider.key_refused" in scene.kinds())
    assert scene.instance_of(run_id).state == "destroying"
    assert len(scene.market.live(scene.ours)) == 1
    assert scene.finish(run_id).state == "passed"
    assert scene.market.live(scene.ours) == []


@pytest.mark.crash
@pytest.mark.parametrize("variant", scenarios.VARIANTS["N25"])
def test_logs_of_every_kind(scene: VastScene, variant: str) -> None:
    scene.market.scenario("N25", variant)
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    [machine] = scene.machines_of(run_id)
    told = scene.artifact(machine, "provider-logs.json")
    if variant in ("never", "late"):
        assert b"absent" in told
        return
    log = scene.artifact(machine, "provider.log")
    assert b"yesterday's output" not in log
    assert len(log) <= 256 * 1024
    rented = scene.market.instances[int(machine.provider_id or 0)]
    assert rented.env["PROVEFLEET_BOOTSTRAP_TOKEN"].encode() not in log
    assert rented.key.encode() not in log


@pytest.mark.crash
def test_logs_asked_for_too_late(scene: VastScene) -> None:
    """N26: there are none, and the bundle says so."""
    scene.market.scenario("N26")
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    assert b"absent" in scene.artifact(scene.machines_of(run_id)[0], "provider-logs.json")


@pytest.mark.crash
@pytest.mark.parametrize("variant", scenarios.VARIANTS["N27"])
def test_a_list_that_does_not_add_up_proves_nothing(scene: VastScene, variant: str) -> None:
    run_id = scene.request()
    scene.proofs_a_tick = 0
    scene.until(lambda: bool(scene.instances()) and scene.instance_of(run_id).state == "benchmarking")
    scene.market.scenario("N27", variant, **({} if variant in ("26", "51", "nulls") else {"times": 20}))
    scene.tick(times=8)
    assert scene.deletes() == 0
    scene.market.faults.clear()
    scene.proofs_a_tick = 1
    assert scene.finish(run_id).state == "passed", scene.told()
    assert len(scene.machines_of(run_id)) == 1


def test_strangers_and_their_labels(scene: VastScene) -> None:
    """N28: look-alikes of our labels stay what they are; what is really ours and nobody's is adopted and destroyed."""
    scene.market.scenario("N28", prefix=scene.ours)
    orphan = scene.market.add_instance(scene.account, scene.ours + "0" * 32, foreign=False)
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    scene.until(lambda: not orphan.live)
    assert "instance.adopted" in scene.kinds()


@pytest.mark.crash
@pytest.mark.parametrize(
    ("variant", "route"),
    [
        ("html", scenarios.SEARCH),
        ("redirect", scenarios.LIST),
        ("html", scenarios.CREATE),
        ("empty", scenarios.CREATE),
        ("redirect", scenarios.CREATE),
        ("empty", scenarios.DESTROY),
    ],
)
def test_a_page_instead_of_an_answer(scene: VastScene, variant: str, route: str) -> None:
    """N29: a create that was answered so is in doubt; and nobody is followed to another host with our key."""
    scene.market.scenario("N29", variant, route=route, times=2)
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    assert len(scene.machines_of(run_id)) == 1


@pytest.mark.crash
def test_a_search_that_forgets_its_filters(scene: VastScene) -> None:
    """N30: what does not fit is dropped here."""
    scene.market.add_machine("RTX 4090", dollars_per_gpu_hour=0.01, reliability=0.3, cuda=13.0)
    scene.market.scenario("N30:violates")
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    assert all(offer.facts["reliability"] >= 0.9 for offer in scene.offers())


@pytest.mark.crash
@pytest.mark.parametrize("variant", ["zero", "nulls"])
def test_a_search_without_an_answer_that_can_be_used(scene: VastScene, variant: str) -> None:
    scene.market.scenario("N30", variant)
    run_id = scene.request()
    run = scene.finish(run_id)
    assert run.state == ("failed" if variant == "zero" else "passed"), scene.told()
    assert run.reason


@pytest.mark.crash
def test_a_price_that_rises_between_search_and_create(scene: VastScene) -> None:
    """N30: a machine over the run's limit is given up as soon as the list shows what it costs."""
    scene.market.scenario("N30:price")
    run_id = scene.request(max_dollars_per_hour=0.40)
    scene.finish(run_id)
    first = scene.machines_of(run_id)[0]
    assert "over the limit of $0.4/h" in scene.story(first)
    assert scene.market.bill(int(first.provider_id or 0)) < 0.02


def test_the_daily_quota_of_searches(scene: VastScene) -> None:
    """N31: the offers of the last search stay until midnight, and nobody asks again before."""
    refresh(scene.context, "vast")
    offers = len(scene.offers())
    scene.market.scenario("N31")
    for _ in range(3):
        with pytest.raises(ProviderUnavailable, match="quota"):
            refresh(scene.context, "vast")
    assert sum(seen.route == scenarios.SEARCH for seen in scene.market.requests) == 3
    assert len(scene.offers()) == offers > 0
    assert "used up until" in scene.reasons()


@pytest.mark.crash
@pytest.mark.parametrize("seconds", [-420.0, 420.0])
def test_clocks_that_differ(scene: VastScene, seconds: float) -> None:
    """N32: neither is a running contract over, nor an old log a new one."""
    scene.market.scenario("N32", seconds=seconds)
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    assert scene.artifact(scene.machines_of(run_id)[0], "provider.log")


@pytest.mark.crash
def test_a_sweep_while_the_database_is_down(scene: VastScene) -> None:
    """N35: nothing is known, so nothing is deleted; later the orphan goes and the strangers stay."""
    scene.tick()
    scene.market.scenario("N35", labels=(scene.ours + "1" * 32,))
    context, engine = scene.context, scene.context.engine
    context.engine = make_engine("sqlite:////nonexistent/provefleet.db")
    context.sessions = make_sessions(context.engine)
    for _ in range(3):
        with pytest.raises(OperationalError):
            scene.tick()
    assert scene.deletes() == 0
    context.engine, context.sessions = engine, make_sessions(engine)
    scene.until(lambda: scene.market.live(scene.ours + "1") == [])
    scene.until(scene.at_rest)
