"""The provider's own logs: asked for first, waited for within bounds, and never missing without a word."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs import provider_logs
from jobs.collect import collect_logs
from jobs.domain.runs import cancel_run
from jobs.market.providers.base import LogsNotReady, NoSuchInstance, ProviderUnavailable
from logs.wire import artifact_key
from tests.fakes.market import lost
from tests.jobs.agent import Agent
from tests.jobs.scene import Scene


def sealed(scene: Scene) -> Agent:
    """A machine whose agent has shipped everything."""
    agent = scene.working()
    assert cancel_run(scene.context, agent.run_id, "anna", "no")
    assert agent.seal().accepted
    return agent


def account(scene: Scene, agent: Agent) -> dict[str, Any]:
    key = artifact_key(agent.run_id, agent.instance_id, provider_logs.ACCOUNT)
    told: dict[str, Any] = json.loads(scene.context.store.get(key, 1 << 20))
    return told


def not_ready() -> None:
    raise LogsNotReady("not uploaded yet")


def gone() -> None:
    raise NoSuchInstance("never heard of it")


def test_they_are_asked_for_once_and_waited_for(scene: Scene) -> None:
    agent = sealed(scene)
    scene.market.on("logs", "before", not_ready, not_ready)
    for attempt in range(2):
        collect_logs(agent.instance_id, attempt)
        assert scene.instance(agent.instance_id).state == "sealing"
        scene.clock.advance(2)
    collect_logs(agent.instance_id, 3)
    assert scene.instance(agent.instance_id).state == "destroying"
    assert scene.market.calls["request_logs"] == 1
    assert account(scene, agent)["provider.log"]["bytes"] > 0


@pytest.mark.parametrize(("call", "fault"), [("logs", not_ready), ("logs", lost), ("request_logs", lost)])
def test_they_never_hold_up_the_end_past_the_evidence_deadline(scene: Scene, call: str, fault: Any) -> None:
    agent = sealed(scene)
    scene.market.on(call, "before", *[fault] * 500)
    deadline = scene.instance(agent.instance_id).evidence_deadline_ms or 0
    scene.tick_until(lambda: scene.instance(agent.instance_id).state != "sealing", 130)
    assert scene.clock() <= deadline
    assert scene.instance(agent.instance_id).evidence == "complete"
    assert account(scene, agent)["provider.log"]["absent"]


@pytest.mark.parametrize("call", ["logs", "request_logs"])
def test_a_machine_that_the_provider_knows_no_more_is_not_waited_for(scene: Scene, call: str) -> None:
    agent = sealed(scene)
    scene.market.on(call, "before", gone)
    collect_logs(agent.instance_id, 1)
    assert scene.instance(agent.instance_id).state == "destroying"
    assert "knew the machine no more" in account(scene, agent)["provider.log"]["absent"]


def test_elsewhere_the_daemons_log_is_missed_too(scene: Scene) -> None:
    agent = sealed(scene)
    scene.market.remote = True
    collect_logs(agent.instance_id, 1)
    assert account(scene, agent)["provider-daemon.log"] == {"absent": "the machine's host did not upload it"}


def test_an_empty_one_is_said_to_be_empty_and_secrets_are_taken_out() -> None:
    secret = "Authorization: Bearer " + "a1B2" * 10
    kept = dict(
        provider_logs.artifacts({"provider.log": f"x\n{secret}\n".encode(), "provider-daemon.log": "it is empty"})
    )
    assert b"a1B2a1B2" not in kept["provider.log"]
    told = json.loads(kept[provider_logs.ACCOUNT])
    assert told["provider-daemon.log"] == {"absent": "it is empty"}
    assert told["provider.log"] == {"bytes": len(kept["provider.log"])}


def test_a_call_that_hangs_is_left_behind() -> None:
    import threading

    go_on = threading.Event()
    with pytest.raises(ProviderUnavailable, match="did not answer"):
        provider_logs._within(0.05, lambda: go_on.wait(20))
    go_on.set()
    assert provider_logs._within(5, lambda: 7) == 7
