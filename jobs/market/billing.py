"""What the provider says of our money: the credit, each minute, and its bill, each hour and after a rental ended.

The bill lags by hours. A day after the end of a rental it is taken for complete, if it reaches to that end, and then it
replaces our own account in the ledger; after three days whatever there is counts. Each read covers whole days (UTC) and
replaces what was known of them, so that reading twice changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, or_, select

from jobs.domain.market_models import Account, Charge, LedgerDay
from jobs.domain.models import Instance
from jobs.domain.states import ENDED
from jobs.domain.work import record, transaction
from jobs.market import provider, provider_names
from jobs.market.accrual import DAY_MS, HOUR_MS
from jobs.market.prices import money
from jobs.market.providers.base import ProviderError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from jobs.context import Context
    from jobs.market.providers.base import ChargeFacts

CREDIT_EVERY_MS = RETRY_MS = 60_000
CHARGES_EVERY_MS = HOUR_MS
AFTER_END_MS = 60_000
COMPLETE_MS, CLOSED_MS = DAY_MS, 3 * DAY_MS
REACHES_MS = 120_000
"""A bill whose last line ends longer than this before the rental did is not taken for complete."""


def tick(context: Context) -> None:
    """Read what is due. Called by reconcile, each second; it says in `accounts` what could not be read, and why."""
    now = context.now_ms()
    for name in provider_names(context.settings):
        if not provider(context, name).bills:
            continue
        with context.sessions() as session:
            account = session.get(Account, name) or Account(provider=name)
            charges = _charges_due(session, account, now)
        if account.tried_ms is None or now - account.tried_ms >= CREDIT_EVERY_MS:
            read_credit(context, name)
        if charges:
            read_charges(context, name)


def _charges_due(session: Session, account: Account, now: int) -> bool:
    if account.charges_tried_ms is not None and now - account.charges_tried_ms < RETRY_MS:
        return False
    known = account.charged_until_ms
    if known is None or now - known >= CHARGES_EVERY_MS:
        return True
    ended = (Instance.ended_ms > known - AFTER_END_MS, Instance.ended_ms <= now - AFTER_END_MS)
    mine = (Instance.provider == account.provider, Instance.state.in_(ENDED), Instance.rented_ms.is_not(None))
    return session.scalar(select(Instance.id).where(*mine, *ended).limit(1)) is not None


def _account(session: Session, name: str) -> Account:
    account = session.get(Account, name, with_for_update=True)
    if account is None:
        account = Account(provider=name, error="", charges_error="")
        session.add(account)
    return account


def read_credit(context: Context, name: str) -> None:
    """Ask what is left, and say so where it passes the floor or is used up: no machine is to blame for that."""
    try:
        facts, error = provider(context, name).account(), ""
    except ProviderError as failure:
        facts, error = None, str(failure)
    now = context.now_ms()
    with transaction(context) as session:
        account = _account(session, name)
        account.tried_ms = now
        if facts is None:
            if error and not account.error:
                record(session, now, "reconcile", "account.unreadable", f"{name}: {error}")
            account.error = error
            return
        before, floor = account.credit_dollars, context.settings.credit_floor_dollars
        account.credit_dollars, account.read_ms, account.error = facts.credit_dollars, now, ""
        was, is_now = _standing(before, floor), _standing(facts.credit_dollars, floor)
        if was != is_now and (before is not None or is_now != "account.enough"):
            text = f"{money(facts.credit_dollars)} are left at {name}; the floor is {money(floor)}"
            record(session, now, "reconcile", is_now, text, data={"provider": name, "credit": facts.credit_dollars})


def _standing(credit: float | None, floor: float) -> str:
    if credit is None:
        return ""
    if credit <= 0:
        return "account.exhausted"
    return "account.low" if credit < floor else "account.enough"


def read_charges(context: Context, name: str) -> None:
    """Read the bill of the days that can have changed, keep its lines, settle the rentals whose bill is complete."""
    now = context.now_ms()
    with context.sessions() as session:
        begin = _unknown_since(session, name, now)
    try:
        lines, error = list(provider(context, name).charges(begin, now - now % DAY_MS + DAY_MS)), ""
    except ProviderError as failure:
        lines, error = [], str(failure)
    with transaction(context) as session:
        account = _account(session, name)
        account.charges_tried_ms, account.charges_error = now, error
        if error:
            return
        _keep(session, name, lines, begin, now)
        account.charged_until_ms = now
        settle(session, name, now)


def _unknown_since(session: Session, name: str, now: int) -> int:
    """The first day whose bill can have changed: yesterday; at a new day two more; at first of the first rental."""
    account = session.get(Account, name)
    known = account.charged_until_ms if account else None
    if known is None:
        rented = select(func.min(Instance.rented_ms)).where(Instance.provider == name)
        known = min(now, session.scalar(rented) or now)
    back = DAY_MS if known // DAY_MS == now // DAY_MS else CLOSED_MS
    return known - known % DAY_MS - back


def _keep(session: Session, name: str, lines: Sequence[ChargeFacts], begin: int, now: int) -> None:
    """Replace what was known of each rental that the read shows, from `begin` on."""
    by_id = defaultdict(list)
    for line in dict.fromkeys(lines):  # pages may overlap
        by_id[line.provider_id].append(line)
    for provider_id, mine in by_id.items():
        since = min(begin, *(line.begin_ms for line in mine))
        stale = (Charge.provider == name, Charge.provider_id == provider_id, Charge.begin_ms >= since)
        session.execute(delete(Charge).where(*stale))
        for (kind, begin_ms), same in _grouped(mine):
            session.add(
                Charge(
                    provider=name,
                    provider_id=provider_id,
                    label=next((line.label for line in same if line.label), "")[:300],
                    kind=kind,
                    begin_ms=begin_ms,
                    end_ms=max(line.end_ms for line in same),
                    dollars=sum(line.dollars for line in same),
                    fetched_ms=now,
                )
            )
    session.flush()


def _grouped(lines: Iterable[ChargeFacts]) -> Iterable[tuple[tuple[str, int], list[ChargeFacts]]]:
    groups = defaultdict(list)
    for line in lines:
        groups[line.kind[:16], line.begin_ms].append(line)
    return groups.items()


def settle(session: Session, name: str, now: int) -> None:
    """Let the bill count for each rental whose bill is complete; a bill that changed after that counts as it is now."""
    ended = (Instance.provider == name, Instance.state.in_(ENDED), Instance.rented_ms.is_not(None))
    recent = or_(Instance.billed_dollars.is_(None), Instance.ended_ms > now - 2 * CLOSED_MS)
    for instance in session.scalars(select(Instance).where(*ended, recent, Instance.ended_ms <= now - COMPLETE_MS)):
        lines = charges_of(session, instance)
        reached = max((line.end_ms for line in lines), default=0)
        end = instance.delete_sent_ms or instance.ended_ms or 0
        if reached < end - REACHES_MS and now - (instance.ended_ms or 0) < CLOSED_MS:
            continue
        _settle_one(session, instance, lines, now)


def charges_of(session: Session, instance: Instance) -> list[Charge]:
    """The lines of the bill for `instance`: by the provider's id, or by the label where we never learned the id."""
    same = Charge.label == instance.label
    if instance.provider_id is not None:
        same = or_(Charge.provider_id == instance.provider_id, same)
    return list(session.scalars(select(Charge).where(Charge.provider == instance.provider, same)))


def _settle_one(session: Session, instance: Instance, lines: list[Charge], now: int) -> None:
    billed = sum(line.dollars for line in lines)
    if instance.billed_dollars is not None and abs(billed - instance.billed_dollars) < 1e-6:
        return
    by_day: dict[int, float] = defaultdict(float)
    for line in lines:
        for day_ms, dollars in by_days(line):
            by_day[day_ms] += dollars
    known = {day.day_ms: day for day in session.scalars(select(LedgerDay).where(LedgerDay.instance_id == instance.id))}
    for day_ms in known.keys() | by_day.keys():
        day = known.get(day_ms)
        if day is None:
            day = LedgerDay(
                instance_id=instance.id, day_ms=day_ms, gpu_dollars=0.0, disk_dollars=0.0, traffic_dollars=0.0
            )
            session.add(day)
        day.billed_dollars = by_day.get(day_ms, 0.0)
    instance.billed_dollars = billed
    text = f"the bill is {money(billed)}, our own account {money(instance.spent_dollars)}"
    data = {"billed": billed, "accrued": instance.spent_dollars}
    record(session, now, "reconcile", "bill.complete", text, run_id=instance.run_id, instance_id=instance.id, data=data)


def by_days(line: Charge) -> Iterator[tuple[int, float]]:
    """A line of the bill by days (UTC), in proportion to its time."""
    length, start = line.end_ms - line.begin_ms, line.begin_ms
    if length <= 0:
        yield start - start % DAY_MS, line.dollars
        return
    while start < line.end_ms:
        midnight = start - start % DAY_MS
        until = min(line.end_ms, midnight + DAY_MS)
        yield midnight, line.dollars * (until - start) / length
        start = until
