"""Every nasty case N1 to N35 of the marketplace, through the provider and the jobs as shipped.

After each, `VastScene.check` holds: nothing of ours runs without an owner, nothing cost more than was held for it,
every machine left evidence or a reason, strangers were left alone, every interval was kept, the account key is nowhere.
Most of it runs with `make test-crash`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from jobs.domain.db import make_engine, make_sessions
from jobs.domain.models import Instance, Mark
from jobs.market.providers.base import ProviderUnavailable
from jobs.scan import refresh
from logs.wire import artifact_key
from tests.fakes.vast import nasty, scenarios
from tests.jobs.market.vast_scene import VastScene

LIST, DELETE = "GET /api/v1/instances", "DELETE /api/v0/instances/{id}"


@pytest.fixture
def database(state_dir: Path, sqlite_template: Path) -> str:
    shutil.copy(sqlite_template, state_dir / "provefleet.db")
    return f"sqlite:///{state_dir / 'provefleet.db'}"


@pytest.fixture
def scene(vast_scene: VastScene, caplog: pytest.LogCaptureFixture) -> Any:
    """The scene; its invariants are checked when the test is through."""
    yield vast_scene
    vast_scene.check(caplog.text)


def deletes(scene: VastScene) -> int:
    return sum(seen.route == DELETE for seen in scene.market.requests)


def reasons(scene: VastScene) -> str:
    return "\n".join(event.reason for event in scene.events())


def story(scene: VastScene, instance: Instance) -> str:
    """All that is on record about one machine."""
    return "\n".join(f"{e.kind} {e.reason}" for e in scene.events() if e.instance_id == instance.id)


def left(scene: VastScene, run_id: str, seconds: float = 5.0) -> list[Instance]:
    """Both machines of a run whose first one comes to nothing, while it works."""
    scene.proofs_a_tick = 0
    scene.until(lambda: len(scene.machines_of(run_id)) == 2, seconds=seconds)
    scene.proofs_a_tick = 2
    assert scene.finish(run_id).state == "passed", scene.told()
    return scene.machines_of(run_id)


def marks(scene: VastScene) -> list[Mark]:
    with scene.context.sessions() as session:
        return list(session.query(Mark))


def artifact(scene: VastScene, instance: Instance, name: str) -> bytes:
    return scene.context.store.get(artifact_key(instance.run_id or "none", instance.id, name), 64 << 20)


# What the run comes to, and on how many machines.


@pytest.mark.crash
@pytest.mark.parametrize("case", ["N1", "N2", "N4:applied", "N5"])
def test_a_create_whose_answer_is_lost(scene: VastScene, case: str) -> None:
    """It is never sent again: the label tells that there is a machine, and which."""
    scene.market.scenario(case)
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    [machine] = scene.machines_of(run_id)
    assert sum(seen.route == scenarios.CREATE for seen in scene.market.requests) == 1
    assert "found by its label after a doubtful create" in reasons(scene)
    assert machine.provider_id is not None


@pytest.mark.crash
def test_a_create_whose_answer_is_lost_and_that_is_listed_late(scene: VastScene) -> None:
    """N1 with N7: half a minute without it in the list is no proof that it isn't there."""
    scene.market.scenario("N1")
    scene.market.scenario("N7")
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    assert len(scene.machines_of(run_id)) == 1


@pytest.mark.crash
def test_a_create_that_is_refused_with_status_200(scene: VastScene) -> None:
    """N4: the label proves that nothing was rented; then another offer is tried."""
    scene.market.scenario("N4")
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    assert len(scene.machines_of(run_id)) == 1
    assert [i.state for i in scene.instances()] == ["not_rented", "destroyed"]


@pytest.mark.crash
def test_two_runs_at_once_where_offers_can_be_rented_twice(scene: VastScene) -> None:
    scene.market.scenario("N3")
    runs = [scene.request(), scene.request()]
    for run_id in runs:
        assert scene.finish(run_id).state == "passed", scene.told()
    machines = [i.machine_id for run_id in runs for i in scene.machines_of(run_id)]
    assert len(machines) == len(set(machines)) == 2


@pytest.mark.crash
def test_a_stranger_has_rented_our_offer_at_the_same_moment(scene: VastScene) -> None:
    """N3: ours is the second one, can't bind its ports, and is left for another machine."""
    scene.market.scenario("N3")
    run_id = scene.request()
    scene.until(lambda: bool(scene.instances()))
    [intended] = scene.instances()
    offer = scene.market.offers[int(intended.offer_id)]
    stranger = scene.market.add_account("f" * 64, name="a stranger")
    scene.market.add_instance(stranger, "theirs", offer.machine)
    assert scene.finish(run_id).state == "passed", scene.told()
    first, second = scene.machines_of(run_id)
    assert "port is already allocated" in story(scene, first)
    assert first.machine_id != second.machine_id


@pytest.mark.crash
@pytest.mark.parametrize("case", ["N6", "N7", "N13:late", "N13:never", "N14:direct_dead", "N14:proxy_dead", "N34"])
def test_what_does_not_matter(scene: VastScene, case: str) -> None:
    """Late reads; ports and ssh, which our agent does not need; keys that nobody has heard of."""
    scene.market.scenario(case)
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    assert len(scene.machines_of(run_id)) == 1


@pytest.mark.crash
@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("N8", "has not moved for"),
        ("N10", "has not moved for"),
        ("N11", "manifest"),
        ("N12", "OCI runtime create failed"),
        ("N19", "went offline"),
        ("N22", "its contract ended"),
    ],
)
def test_a_machine_that_fails_is_left_for_another(scene: VastScene, case: str, why: str) -> None:
    scene.market.scenario(case)
    run_id = scene.request()
    first, second = left(scene, run_id, seconds=20)
    assert why in story(scene, first)
    assert first.machine_id != second.machine_id
    assert first.evidence_sha256


@pytest.mark.crash
def test_a_slow_pull_is_waited_for(scene: VastScene) -> None:
    """N9: forty minutes, but it moves on all the time."""
    scene.market.scenario("N9")
    run_id = scene.request(max_duration_s=7200)
    assert scene.finish(run_id, seconds=30).state == "passed", scene.told()
    assert len(scene.machines_of(run_id)) == 1


@pytest.mark.crash
@pytest.mark.parametrize("case", ["N15:gpu", "N15:vram"])
def test_a_machine_with_other_hardware_than_was_let(scene: VastScene, case: str) -> None:
    """What the agent finds is held against what was let."""
    scene.market.scenario(case)
    run_id = scene.request()
    scene.finish(run_id)
    assert [mark.kind for mark in marks(scene)] == ["wrong_specs"]


@pytest.mark.crash
def test_a_machine_without_a_driver_is_broken(scene: VastScene) -> None:
    scene.market.scenario("N15:smi")
    run_id = scene.request()
    assert scene.finish(run_id).state == "broken", scene.told()
    assert {mark.kind for mark in marks(scene)} == {"wrong_specs", "broken"}


@pytest.mark.crash
def test_a_container_whose_agent_never_calls(scene: VastScene) -> None:
    """It runs, and nobody hears of it: silence has its limit, and its own log tells why."""
    scene.mute = 1
    first, second = left(scene, scene.request(), seconds=20)
    assert "has not moved for" in story(scene, first)
    assert first.machine_id != second.machine_id
    assert b"still here" in artifact(scene, first, "provider.log")


@pytest.mark.crash
def test_a_machine_of_the_wrong_kind_is_left(scene: VastScene) -> None:
    """vast-cli #403: rented on demand although a bid was made. It is noticed in the list, and not kept."""
    run_id = scene.request(interruptible=True)
    scene.until(lambda: bool(scene.machines_of(run_id)))
    [first] = scene.machines_of(run_id)
    scene.market.instances[int(first.provider_id or 0)].overrides["is_bid"] = False
    assert scene.finish(run_id).state == "passed", scene.told()
    assert "instance.wrong_kind asked for interruptible" in story(scene, first)
    assert len(scene.machines_of(run_id)) == 2


@pytest.mark.crash
def test_a_bid_that_is_too_low_leaves_nothing_behind(scene: VastScene) -> None:
    """dstack #4036: an error, and a stopped machine that bills its disk. It goes within half a minute."""
    run_id = scene.request(interruptible=True)
    scene.until(lambda: bool(scene.instances()))
    scene.market.offers[int(scene.instance_of(run_id).offer_id)].price_factor *= 3
    scene.until(lambda: bool(scene.machines_of(run_id)))
    first = scene.machines_of(run_id)[0]
    rented = scene.market.instances[int(first.provider_id or 0)]
    scene.until(lambda: not rented.live)
    assert rented.cur == "stopped"
    assert (rented.destroyed_ms or 0) - rented.created_ms <= 30_000
    assert "bid_too_low" in story(scene, first)
    assert scene.finish(run_id).state == "passed", scene.told()


@pytest.mark.crash
def test_a_container_that_is_killed(scene: VastScene) -> None:
    """N16: the run goes on elsewhere, and the log of the first machine is kept."""
    scene.market.scenario("N16")
    first, _second = left(scene, scene.request())
    assert b"Killed" in artifact(scene, first, "provider.log")


@pytest.mark.crash
@pytest.mark.parametrize("case", ["N17", "N18", "N33"])
def test_a_moment_of_weakness_is_forgiven(scene: VastScene, case: str) -> None:
    """A restart within seconds, a host out of sight for a minute, a state that no document names."""
    scene.market.scenario(case)
    run_id = scene.request()
    scene.proofs_a_tick = 0
    scene.tick(times=60)
    scene.proofs_a_tick = 2
    assert scene.finish(run_id).state == "passed", scene.told()
    assert len(scene.machines_of(run_id)) == 1
    assert scene.kinds().count("provider.unheard_status") == (case == "N33")


def test_outbid(scene: VastScene) -> None:
    """N20: seen in one poll; the machine is destroyed before it comes back by itself and bills again."""
    scene.market.scenario("N20")
    first, second = left(scene, scene.request(interruptible=True))
    assert "it was outbid" in story(scene, first)
    assert first.machine_id != second.machine_id
    assert marks(scene) == []
    rented = scene.market.instances[int(first.provider_id or 0)]
    assert rented.is_bid
    stopped_ms = next(e.at_ms for e in scene.events("instance.stopped"))
    began_ms = (rented.started_ms or 0) + 30_000
    assert stopped_ms - began_ms <= 12_000
    assert rented.destroyed_ms is not None
    assert rented.destroyed_ms < began_ms + 300_000


@pytest.mark.crash
def test_credit_that_runs_out(scene: VastScene) -> None:
    """N21: everything stops, ours is sealed and destroyed, and no machine is to blame."""
    run_id = scene.request()
    scene.proofs_a_tick = 0
    scene.until(lambda: bool(scene.instances()) and scene.instance_of(run_id).state == "benchmarking")
    scene.proofs_a_tick = 1
    scene.market.scenario("N21")
    scene.until(lambda: scene.instance_of(run_id).state == "destroyed")
    assert "no credit" in story(scene, scene.machines_of(run_id)[0])
    assert marks(scene) == []
    scene.account.purse.pay(50.0)
    assert scene.finish(run_id).state == "passed", scene.told()


@pytest.mark.crash
def test_no_credit_to_begin_with(scene: VastScene) -> None:
    scene.market.scenario("N21", dollars=0.5)
    run_id = scene.request()
    scene.tick(30, times=4)
    assert scene.machines_of(run_id) == []
    assert "credit" in scene.run(run_id).stage
    scene.account.purse.pay(50.0)
    assert scene.finish(run_id, seconds=20).state == "passed", scene.told()


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
    assert deletes(scene) >= 2
    assert scene.kinds().count("instance.adopted") == (case == "N23:reappears")


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
    told = artifact(scene, machine, "provider-logs.json")
    if variant in ("never", "late"):
        assert b"absent" in told
        return
    log = artifact(scene, machine, "provider.log")
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
    assert b"absent" in artifact(scene, scene.machines_of(run_id)[0], "provider-logs.json")


@pytest.mark.crash
@pytest.mark.parametrize("variant", scenarios.VARIANTS["N27"])
def test_a_list_that_does_not_add_up_proves_nothing(scene: VastScene, variant: str) -> None:
    run_id = scene.request()
    scene.proofs_a_tick = 0
    scene.until(lambda: bool(scene.instances()) and scene.instance_of(run_id).state == "benchmarking")
    scene.market.scenario("N27", variant, **({} if variant in ("26", "51", "nulls") else {"times": 20}))
    scene.tick(times=8)
    assert deletes(scene) == 0
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
    assert "over the limit of $0.4/h" in story(scene, first)
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
    assert "used up until" in reasons(scene)


@pytest.mark.crash
@pytest.mark.parametrize("seconds", [-420.0, 420.0])
def test_clocks_that_differ(scene: VastScene, seconds: float) -> None:
    """N32: neither is a running contract over, nor an old log a new one."""
    scene.market.scenario("N32", seconds=seconds)
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    assert artifact(scene, scene.machines_of(run_id)[0], "provider.log")


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
    assert deletes(scene) == 0
    context.engine, context.sessions = engine, make_sessions(engine)
    scene.until(lambda: scene.market.live(scene.ours + "1") == [])
    scene.until(scene.at_rest)


def test_every_case_has_its_test() -> None:
    told = Path(__file__).read_text()
    assert [name for name in scenarios.CASES if f'"{name}"' not in told and f"{name}:" not in told] == []
    assert nasty.silent.__doc__
