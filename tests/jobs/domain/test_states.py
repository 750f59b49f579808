"""The table of transitions: each edge, forbidden ones, races, and evidence before destroy."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select

from jobs.context import Context
from jobs.domain import states
from jobs.domain.db import writing
from jobs.domain.models import Event, Instance, Run
from jobs.domain.states import INSTANCE_EDGES, RUN_EDGES, ForbiddenTransition, conclude, transition
from tests.jobs.rows import new_instance, new_run

EVIDENCE = {"evidence_sha256": "ab" * 32}
ABSENCE = {"delete_sent_ms": 1, "absent_lists": 2}
ALL = (*states.WORKING, states.RENTING, states.SEALING, states.DESTROYING, *states.ENDED)


def move(context: Context, instance_id: str, old: str, new: str, **more: Any) -> bool:
    with writing(context.sessions) as session:
        instance = session.get_one(Instance, instance_id)
        return transition(session, instance, old, new, reason="test", actor="test", now_ms=5, **more)


@pytest.mark.parametrize("edge", INSTANCE_EDGES, ids="-".join)
def test_each_allowed_edge_leaves_one_event(context: Context, edge: tuple[str, str]) -> None:
    old, new = edge
    guard = {(states.SEALING, states.DESTROYING): EVIDENCE, (states.DESTROYING, states.DESTROYED): ABSENCE}
    instance = new_instance(context, state=old, claim_token="t", claim_until_ms=9, **guard.get(edge, {}))
    assert move(context, instance.id, old, new)
    with context.sessions() as session:
        now = session.get_one(Instance, instance.id)
        assert (now.state, now.state_ms, now.reason, now.claim_token) == (new, 5, "test", None)
        assert (now.ended_ms == 5) == (new in states.ENDED)
        event = session.scalars(select(Event).where(Event.instance_id == instance.id)).one()
        assert (event.old, event.new, event.actor, event.kind) == (old, new, "test", "instance.state")


def test_every_other_pair_is_a_bug_and_says_so(context: Context) -> None:
    instance = new_instance(context, state=states.LOADING, **EVIDENCE, **ABSENCE)
    for old in ALL:
        for new in ALL:
            if (old, new) not in INSTANCE_EDGES:
                with pytest.raises(ForbiddenTransition):
                    move(context, instance.id, old, new)
    # What the house forbids by name.
    assert {old for old, new in INSTANCE_EDGES if new == states.DESTROYING} == {states.SEALING}
    assert {new for old, new in INSTANCE_EDGES if old == states.SEALING} == {states.DESTROYING}
    assert not [edge for edge in INSTANCE_EDGES if edge[0] in states.ENDED]


@pytest.mark.parametrize("edge", RUN_EDGES, ids="-".join)
def test_runs_follow_their_table(context: Context, edge: tuple[str, str]) -> None:
    run = new_run(context, state=edge[0])
    with writing(context.sessions) as session:
        mine = session.get_one(Run, run.id)
        assert conclude(session, mine, *edge, reason="r", actor="a", now_ms=7)
    with context.sessions() as session:
        now = session.get_one(Run, run.id)
        assert now.state == edge[1]
        assert (now.started_ms if edge[1] == "active" else now.ended_ms) == 7


@pytest.mark.parametrize("verdict", states.VERDICTS)
def test_a_verdict_is_never_changed(context: Context, verdict: str) -> None:
    run = new_run(context, state=verdict, reason="first")
    for new in states.VERDICTS:
        with writing(context.sessions) as session:
            mine = session.get_one(Run, run.id)
            with pytest.raises(ForbiddenTransition):
                conclude(session, mine, verdict, new, reason="late", actor="a", now_ms=7)
            # A worker that still believes the run to be active is simply too late.
            assert not conclude(session, mine, states.ACTIVE, new, reason="late", actor="a", now_ms=7)
    with context.sessions() as session:
        assert (session.get_one(Run, run.id).state, session.get_one(Run, run.id).reason) == (verdict, "first")
        assert not session.scalars(select(Event).where(Event.run_id == run.id)).all()


@pytest.mark.parametrize(
    ("kept", "leaves"),
    [
        ({}, False),
        ({"evidence": "complete", "agent_manifest": {"streams": {}}}, False),
        ({"evidence_deadline_ms": 0}, False),
        ({"evidence_sha256": "ab" * 32}, True),
        ({"evidence_gap": "the archive was down"}, True),
        ({"forced_by": "anna"}, True),
    ],
    ids=["nothing", "words", "deadline", "bundle", "gap", "forced"],
)
def test_nothing_leaves_sealing_without_its_evidence(context: Context, kept: dict[str, Any], leaves: bool) -> None:
    instance = new_instance(context, state=states.SEALING, **kept)
    assert move(context, instance.id, states.SEALING, states.DESTROYING) is leaves


@pytest.mark.parametrize(
    ("seen", "gone"),
    [({}, False), ({"delete_sent_ms": 1, "absent_lists": 1}, False), ({"absent_lists": 9}, False), (ABSENCE, True)],
)
def test_destroyed_needs_our_delete_and_two_lists(context: Context, seen: dict[str, int], gone: bool) -> None:
    instance = new_instance(context, state=states.DESTROYING, **seen)
    assert move(context, instance.id, states.DESTROYING, states.DESTROYED) is gone


def test_random_walks_never_get_past_the_evidence(context: Context) -> None:
    """Whatever is tried in whatever order: past sealing there is evidence, at the end a proof of absence."""
    dice = random.Random(20_26)
    acts = [EVIDENCE, {"evidence_gap": "gap"}, {"forced_by": "anna"}, {"delete_sent_ms": 3}, {"absent_lists": 2}, {}]
    for _ in range(6):
        instance = new_instance(context, state=states.RENTING)
        for _ in range(25):
            with writing(context.sessions) as session:
                mine = session.get_one(Instance, instance.id)
                if dice.random() < 0.3:
                    for name, value in dice.choice(acts).items():
                        setattr(mine, name, value)
                old, new = mine.state, dice.choice(ALL)
                kept = bool(mine.evidence_sha256 or mine.evidence_gap or mine.forced_by)
                absent = mine.delete_sent_ms is not None and mine.absent_lists >= 2
                try:
                    moved = transition(session, mine, old, new, reason="", actor="", now_ms=1)
                except ForbiddenTransition:
                    continue
                if new == states.DESTROYING:
                    assert moved == (old == states.SEALING and kept)
                if new == states.DESTROYED:
                    assert moved == (old == states.DESTROYING and absent)


def _race(
    make_context: Callable[..., Context], instance_id: str, token: str | None, start: threading.Barrier, number: int
) -> bool:
    rival = make_context()
    start.wait()
    new = states.READY if number % 2 else states.SEALING
    return move(rival, instance_id, states.BENCHMARKING, new, token=token)


def test_of_many_that_move_a_row_at_once_one_wins(context: Context, make_context: Callable[..., Context]) -> None:
    for token in (None, "mine"):
        instance = new_instance(context, state=states.BENCHMARKING, claim_token=token, claim_until_ms=9)
        start = threading.Barrier(8)
        ask = partial(_race, make_context, instance.id, token, start)
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(ask, range(8))) == 1
        with context.sessions() as session:
            assert len(session.scalars(select(Event).where(Event.instance_id == instance.id)).all()) == 1


def test_a_lost_claim_moves_nothing(context: Context) -> None:
    instance = new_instance(context, state=states.RENTING, claim_token="another's", claim_until_ms=9)
    assert not move(context, instance.id, states.RENTING, states.LOADING, token="mine")
    assert move(context, instance.id, states.RENTING, states.LOADING, token="another's")
