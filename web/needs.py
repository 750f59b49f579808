"""What an operator should look at, worst first: what broke in the last day, and what threatens what runs now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from jobs.context import Context
from jobs.domain.market_models import Account, Cap, Snapshot
from jobs.domain.models import Event, Instance, Run
from jobs.market import budget, reputation
from web import format as f
from web import queries, scope
from web.status import MARK

SOON_MS = 12 * queries.HOUR_MS
EVENTS = {
    "instance.adopted": ("attention", "Found at the provider, of ours and in nobody's care: {}", "Open it"),
    "instance.wrong_kind": ("bad", "Not rented as asked, so it is given back: {}", "Open it"),
    "provider.key_refused": ("bad", "The provider refuses our key: {}", "Open it"),
}


@dataclass(frozen=True)
class Need:
    """Something an operator should look at: how bad, what, and where to."""

    tone: str
    text: str
    link: str
    word: str


def all_of(context: Context, session: Session, live: Sequence[Instance], now: int) -> list[Need]:
    found = [
        *_money(context, session, now),
        *_lists(session, now),
        *_happened(session, now),
        *_runs(session, now),
        *_marked(session, live, now),
        *_evidence(session, now),
    ]
    return sorted(found, key=lambda need: need.tone != "bad")


def _money(context: Context, session: Session, now: int) -> Iterator[Need]:
    """Credit that ends, accounts that can't be read, caps that are used up."""
    floor = context.settings.credit_floor_dollars
    for account in session.scalars(select(Account)):
        if account.error:
            yield Need("bad", f"{account.provider}'s account can't be read: {account.error}", "/settings", "Settings")
        elif account.credit_dollars is not None and account.credit_dollars < floor:
            left = f"The credit at {account.provider} is {f.money(account.credit_dollars)}, under {f.money(floor)}"
            yield Need("bad", f"{left}: nothing more is rented there until somebody pays in.", "/costs", "Costs")
    ahead = budget.forecast(context, session, now)
    if ahead.exhausted_ms is not None and ahead.exhausted_ms - now < SOON_MS:
        yield Need("attention", f"{ahead.text}.", "/costs", "Costs")
    mine = budget.USER + scope.actor()
    for cap in session.scalars(select(Cap).where(Cap.scope.in_(("day", "month", mine)))):
        used = budget.committed(session, cap.scope, now)
        if used.dollars >= cap.dollars:
            what = budget.cap_words(cap.scope)
            text = f"{what[0].upper()}{what[1:]}, {f.money(cap.dollars)}, is used up: nothing more is rented under it."
            yield Need("attention", text, "/costs", "Costs")


def _lists(session: Session, now: int) -> Iterator[Need]:
    """A provider whose machines can't be listed: nothing is proven gone meanwhile."""
    for row in session.scalars(select(Snapshot).where(Snapshot.error != "")):
        since = f"; the last good list is from {f.relative(row.ended_ms, now)}" if row.ended_ms else ""
        yield Need("bad", f"{row.provider}'s machines can't be listed: {row.error}{since}.", "/settings", "Settings")


def _happened(session: Session, now: int) -> Iterator[Need]:
    recent = select(Event).where(Event.at_ms > now - queries.DAY_MS, Event.kind.in_(EVENTS))
    for event in session.scalars(recent.order_by(Event.id.desc()).limit(5)):
        tone, words, link = EVENTS[event.kind]
        where = f"/instances/{event.instance_id}" if event.instance_id else "/audit"
        yield Need(tone, words.format(event.reason), where, link)


def _runs(session: Session, now: int) -> Iterator[Need]:
    # As an expression, so that the index on the time is taken and not the one on the state, which holds all of history.
    recent_only = func.coalesce(Run.state, "")
    wrong = (Run.created_ms > now - queries.DAY_MS, recent_only.in_(("broken", "failed")))
    for run in session.scalars(queries.with_parts(select(Run)).where(*wrong).order_by(Run.created_ms.desc()).limit(5)):
        text = f"{queries.what(run)} is {run.state}: {run.reason or 'no reason was recorded'}"
        yield Need("bad", text, f"/runs/{run.id}", "Open the run")


def _marked(session: Session, live: Iterable[Instance], now: int) -> Iterator[Need]:
    """Machines that work for us now, and have a mark: nothing ends them but a decision."""
    working = {(i.provider, i.machine_id): i for i in live if i.machine_id}
    for pair, marks in reputation.marks_of(session, working, now).items():
        instance, word = working[pair], MARK[marks[0].kind].word.lower()
        text = f"Machine {pair[1]} works now and is marked {word}: {marks[0].reason}"
        yield Need("attention", text, f"/instances/{instance.id}", "Open it")


def _evidence(session: Session, now: int) -> Iterator[Need]:
    short = (Instance.created_ms > now - queries.DAY_MS, Instance.evidence.in_(("gaps", "vanished")))
    for i in session.scalars(
        select(Instance)
        .options(defer(Instance.agent_manifest))
        .where(*short)
        .order_by(Instance.created_ms.desc())
        .limit(3)
    ):
        text = f"Evidence of machine {i.machine_id or '?'}: {i.evidence_text or i.evidence}"
        yield Need("attention", text, f"/instances/{i.id}", "See what is missing")
