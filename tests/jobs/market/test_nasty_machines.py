"""The nasty cases N1 to N35 of the marketplace, through the provider and the jobs as shipped: creates and machines.

After each, `VastScene.check` holds: nothing of ours runs without an owner, nothing cost more than was held for it,
every machine left evidence or a reason, strangers were left alone, every interval was kept, the account key is nowhere.
The other cases are in `test_nasty_answers.py`. Most of them run with `make test-crash`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.vast import scenarios
from tests.jobs.market.vast_scene import VastScene

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.fixture
def scene(vast_scene: VastScene, caplog: pytest.LogCaptureFixture) -> Any:
    """The scene; its invariants are checked when the test is through."""
    yield vast_scene
    vast_scene.check(caplog.text)


@pytest.mark.crash
@pytest.mark.parametrize("case", ["N1", "N2", "N4:applied", "N5"])
def test_a_create_whose_answer_is_lost(scene: VastScene, case: str) -> None:
    """It is never sent again: the label tells that there is a machine, and which."""
    scene.market.scenario(case)
    run_id = scene.request()
    assert scene.finish(run_id).state == "passed", scene.told()
    [machine] = scene.machines_of(run_id)
    assert sum(seen.route == scenarios.CREATE for seen in scene.market.requests) == 1
    assert "found by its label after a doubtful create" in scene.reasons()
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
    assert "port is already allocated" in scene.story(first)
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
    first, second = scene.left(run_id, seconds=20)
    assert why in scene.story(first)
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
    assert [mark.kind for mark in scene.marks()] == ["wrong_specs"]


@pytest.mark.crash
def test_a_machine_without_a_driver_is_broken(scene: VastScene) -> None:
    scene.market.scenario("N15:smi")
    run_id = scene.request()
    assert scene.finish(run_id).state == "broken", scene.told()
    assert {mark.kind for mark in scene.marks()} == {"wrong_specs", "broken"}


@pytest.mark.crash
def test_a_container_whose_agent_never_calls(scene: VastScene) -> None:
    """It runs, and nobody hears of it: silence has its limit, and its own log tells why."""
    scene.mute = 1
    first, second = scene.left(scene.request(), seconds=20)
    assert "has not moved for" in scene.story(first)
    assert first.machine_id != second.machine_id
    assert b"still here" in scene.artifact(first, "provider.log")


@pytest.mark.crash
def test_a_machine_of_the_wrong_kind_is_left(scene: VastScene) -> None:
    """vast-cli #403: rented on demand although a bid was made. It is noticed in the list, and not kept."""
    run_id = scene.request(interruptible=True)
    scene.until(lambda: bool(scene.machines_of(run_id)))
    [first] = scene.machines_of(run_id)
    scene.market.instances[int(first.provider_id or 0)].overrides["is_bid"] = False
    assert scene.finish(run_id).state == "passed", scene.told()
    assert "instance.wrong_kind asked for interruptible" in scene.story(first)
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
    assert "bid_too_low" in scene.story(first)
    assert scene.finish(run_id).state == "passed", scene.told()


@pytest.mark.crash
def test_a_container_that_is_killed(scene: VastScene) -> None:
    """N16: the run goes on elsewhere, and the log of the first machine is kept."""
    scene.market.scenario("N16")
    first, _second = scene.left(scene.request())
    assert b"Killed" in scene.artifact(first, "provider.log")


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


@pytest.mark.crash
def test_outbid(scene: VastScene) -> None:
    """N20: seen in one poll; the machine is destroyed before it comes back by itself and bills again."""
    scene.market.scenario("N20")
    first, second = scene.left(scene.request(interruptible=True))
    assert "it was outbid" in scene.story(first)
    assert first.machine_id != second.machine_id
    assert scene.marks() == []
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
    assert "no credit" in scene.story(scene.machines_of(run_id)[0])
    assert scene.marks() == []
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
