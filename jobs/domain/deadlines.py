"""Every limit in time and money, enforced from SQL alone: what is late, silent, lost or too dear is sealed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sqlalchemy import exists, or_, select
from sqlalchemy.orm import Session, defer

from jobs import payloads
from jobs.domain.instances import fail, leave, leave_unblamed
from jobs.domain.models import Instance, Run
from jobs.domain.states import ACTIVE, BILLABLE, ENDED, WORKING
from jobs.domain.work import transaction, wake
from jobs.market import accrual, budget, listing
from jobs.market.accrual import Seen

if TYPE_CHECKING:
    from jobs.context import Context
    from jobs.market.providers.base import Listing

ACCOUNTS_AT_ONCE = 100
AWAY_MS = 120_000
MEASURING = ("benchmark", "prove", "serve")
"""A machine that gets nowhere in these may have the payload or the input to blame: its run ends. Where the machine
itself is lost, or came to nothing before, the run goes on to another one."""


def lost(instance: Instance, run: Run | None, now: int, away: bool = False) -> str:
    """Why the machine is given up: late, silent or gone; '' while it is not.

    `away`: this controller was down, and could not have seen it move.
    """
    if now > instance.stage_deadline_ms:
        took = (now - instance.stage_ms) / 1000
        return f"stage {instance.stage} ran into its deadline after {took:.0f} s"
    if is_silent(instance, now):
        heard = (now - (instance.heard_ms or instance.stage_ms)) / 1000
        return f"the agent was not heard for {heard:.0f} s: its lease ran out"
    if run is None or away:
        return ""
    silent_s = payloads.load(run.payload).silent_s.get(instance.stage)
    if silent_s is not None and now - instance.moved_ms > silent_s * 1000:
        return f"stage {instance.stage} has not moved for {(now - instance.moved_ms) / 1000:.0f} s"
    return ""


def is_silent(instance: Instance, now: int) -> bool:
    """The agent registered, and has not renewed its lease in time."""
    return instance.lease_expires_ms is not None and now > instance.lease_expires_ms


def used_up(context: Context, instance: Instance, run: Run | None, now: int) -> str:
    """Which limit of the run, in time or money, ends it on whatever machine; '' while none does."""
    if run is None or instance.rented_ms is None:
        return ""
    if now - instance.rented_ms > run.max_duration_s * 1000:
        return f"max_duration_s of {run.max_duration_s} s is used up"
    ending = budget.ending_dollars(context.settings, instance, run.lease_s)
    if ending > 0 and accrual.spent(instance, now) + ending > instance.reserved_dollars + 1e-9:
        return f"the reservation of ${instance.reserved_dollars:.4f} leaves only what sealing may cost"
    return ""


def enforce(context: Context) -> int:
    """Keep the account, seal what is overdue, wake what was left behind; the number of instances sealed."""
    now = context.now_ms()
    query = select(Instance, Run).outerjoin(Run, Run.id == Instance.run_id).where(Instance.state.in_(BILLABLE))
    with context.sessions() as session:
        live = session.execute(query.options(defer(Instance.agent_manifest)).order_by(Instance.id)).all()
    lists = _lists(context, {instance.provider for instance, _ in live})
    seen = _meters(lists.values())
    _keep_account(context, [i.id for i, _ in live if accrual.due(i, seen.get(i.label), now)], seen, now)
    sealed = 0
    for instance, run in live:
        if instance.state not in WORKING:
            continue
        if why := used_up(context, instance, run, now):
            sealed += _seal(context, instance.id, why, fail)
            continue
        away = _were_away(lists.get(instance.provider), now)
        if why := lost(instance, run, now, away):
            silent = is_silent(instance, now)
            end = fail if instance.stage in MEASURING and not silent else leave
            if silent and away:
                end, why = leave_unblamed, f"{why}, while this controller was away itself"
            sealed += _seal(context, instance.id, why, end)
    _wake_left_behind(context, now)
    return sealed


def _lists(context: Context, providers: set[str]) -> dict[str, Listing]:
    """The newest complete list of each provider that has one."""
    return {name: found for name in providers if (found := listing.newest(context, name)) is not None}


def _were_away(newest: Listing | None, now: int) -> bool:
    """Nobody read the provider's list for so long that we were down, and machines may have found nobody to renew with.
    The list is read after this in each round: so it tells of the rounds before."""
    return newest is not None and now - newest.begun_ms > AWAY_MS


def _meters(lists: Iterable[Listing]) -> dict[str, Seen]:
    """By label, what the newest complete lists show to be running."""
    rows = ((row, found.begun_ms) for found in lists for row in found.instances)
    return {row.label: Seen(accrual.meter_of(row.status, row.facts), begun_ms) for row, begun_ms in rows}


def _keep_account(context: Context, ids: list[str], seen: dict[str, Seen], now: int) -> None:
    """Bring the accounts of these instances up to date. One that a job holds at this moment has its turn next time."""
    for begin in range(0, len(ids), ACCOUNTS_AT_ONCE):
        some = Instance.id.in_(ids[begin : begin + ACCOUNTS_AT_ONCE])
        mine = select(Instance).where(some, Instance.state.in_(BILLABLE)).order_by(Instance.id)
        with transaction(context) as session:
            accrual.accrue_all(session, session.scalars(mine.with_for_update(skip_locked=True)).all(), now, seen)


def _seal(context: Context, instance_id: str, why: str, end: Callable[..., bool]) -> bool:
    with transaction(context) as session:
        instance = session.get(Instance, instance_id, with_for_update=True)
        return instance is not None and end(context, session, instance, why, "reconcile")


def _wake_left_behind(context: Context, now: int) -> None:
    """An active run without a live instance goes on to another offer, or ends saying why it can't."""
    alive = exists().where(Instance.run_id == Run.id, Instance.state.not_in(ENDED))
    idle = or_(Run.claim_until_ms.is_(None), Run.claim_until_ms < now)
    left = select(Run.id).where(Run.state == ACTIVE, Run.wake_at_ms.is_(None), idle, ~alive)
    with context.sessions() as session:
        ids = list(session.scalars(left))
    for run_id in ids:
        with transaction(context) as session:
            _wake_run(session, run_id, now)


def _wake_run(session: Session, run_id: str, now: int) -> None:
    run = session.get(Run, run_id)
    if run is not None and run.state == ACTIVE:
        wake(session, run, now)
