"""Marks: what they say, how they fade, what withdraws them, and that none ends a rental."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.orm import Session

from jobs.context import Context
from jobs.domain.market_models import Machine, Mark
from jobs.domain.models import Event
from jobs.market import reputation
from jobs.market.reputation import DAY_MS, HALF_LIFE_DAYS, MarkRefused
from tests.jobs.rows import NOW, new_instance, new_run

M = ("local", "m1")


@pytest.fixture
def session(context: Context) -> Iterator[Session]:
    with context.sessions() as session:
        times = {"first_seen_ms": NOW, "last_seen_ms": NOW}
        session.add_all(Machine(provider="local", machine_id=name, host_id="h", **times) for name in ("m1", "m2"))
        session.flush()
        yield session


def mark(session: Session, kind: str = "broken", now: int = NOW, **more: Any) -> Mark:
    return reputation.mark(session, now, *M, kind, "0 of 2 valid", "benchmark", **more)


def current_kind(session: Session, now: int) -> str:
    found = reputation.current(session, now, *M)
    return found.kind if found else ""


@pytest.mark.parametrize("kind", reputation.KINDS)
def test_a_mark_halves_and_then_counts_no_more(session: Session, kind: str) -> None:
    made = mark(session, kind)
    half_life = HALF_LIFE_DAYS[kind] * DAY_MS
    assert (reputation.weight(made, NOW), reputation.weight(made, NOW + half_life)) == (1.0, pytest.approx(0.5))
    assert current_kind(session, NOW + 2 * half_life - 1) == kind
    assert current_kind(session, NOW + 2 * half_life) == ""
    assert made.host_id == "h"


def test_what_comes_back_lasts_longer(session: Session) -> None:
    lasting = []
    for n in range(6):
        made = mark(session, now=NOW + n, instance_id=f"i{n}")
        lasting.append((made.fades_ms - made.at_ms) / (2 * HALF_LIFE_DAYS["broken"] * DAY_MS))
    assert lasting == [1, 2, 4, 8, 8, 8]
    assert mark(session, "slow").fades_ms == NOW + 2 * HALF_LIFE_DAYS["slow"] * DAY_MS  # of its own kind only


def test_the_same_evidence_is_one_mark(session: Session) -> None:
    first = mark(session, instance_id="i1")
    assert mark(session, instance_id="i1", now=NOW + 5).id == first.id
    assert mark(session, "unstable", instance_id="i1").id != first.id
    assert session.query(Event).filter(Event.kind == "machine.marked").count() == 2


def test_the_worst_comes_first(session: Session) -> None:
    for kind in ("slow", "broken", "unstable", "wrong_specs"):
        mark(session, kind)
    found = reputation.marks_of(session, [M, ("local", "m2")], NOW)
    assert [m.kind for m in found[M]] == ["broken", "wrong_specs", "unstable", "slow"]
    assert found.keys() == {M}
    assert reputation.marks_of(session, None, NOW).keys() == {M}
    assert reputation.marks_of(session, [], NOW) == {}


def test_an_appeal_is_heard_and_a_withdrawal_ends_it(session: Session) -> None:
    made = mark(session, run_id="r" * 32)
    reputation.appeal(session, NOW + 1, made.id, "anna", "the host changed the card")
    assert (made.appeal, made.appealed_by) == ("the host changed the card", "anna")
    assert current_kind(session, NOW + 1) == "broken"
    reputation.withdraw(session, NOW + 2, made.id, "boris", "seen: it is another card")
    assert current_kind(session, NOW + 2) == ""
    assert reputation.weight(made, NOW + 2) == 0
    with pytest.raises(MarkRefused, match="withdrawn already"):
        reputation.appeal(session, NOW + 3, made.id, "anna", "again")
    session.flush()
    told = [(e.kind, e.actor, e.run_id) for e in session.query(Event).order_by(Event.id)]
    assert told == [("machine.marked", "benchmark", "r" * 32), ("mark.appealed", "anna", "r" * 32),
                    ("mark.withdrawn", "boris", "r" * 32)]  # fmt: skip


def test_a_withdrawn_mark_does_not_lengthen_the_next(session: Session) -> None:
    reputation.withdraw(session, NOW, mark(session).id, "anna", "our own fault")
    assert mark(session, now=NOW + 1).fades_ms == NOW + 1 + 2 * HALF_LIFE_DAYS["broken"] * DAY_MS


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda s: reputation.mark(s, NOW, *M, "ugly", "x", "anna"), "one of broken"),
        (lambda s: reputation.mark(s, NOW, *M, "slow", "  ", "anna"), "say why"),
        (lambda s: reputation.mark(s, NOW, "local", "m9", "slow", "x", "anna"), "scan first"),
        (lambda s: reputation.withdraw(s, NOW, 77, "anna", "x"), "no such mark"),
        (lambda s: reputation.withdraw(s, NOW, mark(s).id, "anna", " "), "say why"),
        (lambda s: reputation.appeal(s, NOW, mark(s).id, "anna", ""), "say what is wrong"),
    ],
)
def test_what_is_refused_says_why(session: Session, call: Any, says: str) -> None:
    with pytest.raises(MarkRefused, match=says):
        call(session)


def test_a_machine_that_works_for_someone_is_marked_only_when_confirmed(context: Context, session: Session) -> None:
    session.commit()
    run = new_run(context)
    new_instance(context, machine_id="m1", run_id=run.id, state="benchmarking")
    new_instance(context, machine_id="m1", state="destroyed")
    with pytest.raises(MarkRefused, match=run.id):
        reputation.mark_by_hand(session, NOW, *M, "slow", "noisy", "anna")
    made = reputation.mark_by_hand(session, NOW, *M, "slow", "noisy", "anna", confirmed=True)
    assert made.by == "anna"
    assert [i.state for i in reputation.in_use(session, *M)] == ["benchmarking"]
    assert reputation.in_use(session, "local", "m2") == []


def test_a_passed_benchmark_refutes_what_jobs_said_and_not_what_operators_did(session: Session) -> None:
    mark(session)
    mark(session, "unstable")
    by_hand = reputation.mark_by_hand(session, NOW, *M, "broken", "smells", "anna")
    reputation.refuted(session, NOW + 1, *M, ("broken", "slow"), "benchmark")
    left = reputation.marks_of(session, [M], NOW + 1)[M]
    assert [m.kind for m in left] == ["broken", "unstable"]
    assert left[0].id == by_hand.id


@pytest.mark.parametrize(("why", "counted"), [("", 1), ("stopped", 1), ("outbid", 0), ("no_credit", 0), ("expired", 0)])
def test_what_the_market_did_is_held_against_no_machine(
    context: Context, session: Session, why: str, counted: int
) -> None:
    session.commit()
    instance = new_instance(context, machine_id="m1", seen={"stopped_why": why})
    reputation.failed(session, NOW, instance, "stopped", "watch")
    session.flush()
    assert session.query(Event).filter(Event.kind == reputation.FAILED).count() == counted
