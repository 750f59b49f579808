"""What may be spent: caps, what is held against them, and how long the credit lasts.

Against a cap counts what was spent in its time, and all that the machines rented now may still cost. It is checked in
the transaction that writes down the intent to rent, one at a time. A cap stops launches; nothing that runs is ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, case, func, select

from jobs.domain.market_models import Account, Cap, LedgerDay
from jobs.domain.models import Controller, Instance, Run
from jobs.domain.states import BILLABLE, ENDED, WORKING
from jobs.domain.work import record, transaction
from jobs.market import provider
from jobs.market.accrual import DAY_MS, HOUR_MS, open_sql, spent
from jobs.market.prices import money, price_of_instance, tail_s

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from jobs.context import Context
    from jobs.settings import Settings

CREDIT_OLD_MS = 600_000
USER = "user:"


@dataclass(frozen=True)
class Committed:
    """Dollars that count against a cap: `spent` in its time, and `held` by machines that are rented now."""

    spent: float
    held: float

    @property
    def dollars(self) -> float:
        return self.spent + self.held


@dataclass(frozen=True)
class Forecast:
    """How long the credit lasts at what the machines of now cost. `exhausted_ms` is None while nothing spends it."""

    exhausted_ms: int | None
    provider: str = ""
    credit_dollars: float | None = None
    dollars_per_hour: float = 0.0
    text: str = ""


def begins_ms(scope: str, now_ms: int) -> int:
    """When the time of a cap began: 00:00 UTC, of today or of the month's first day."""
    day = now_ms - now_ms % DAY_MS
    if scope == "day":
        return day
    return day - (datetime.fromtimestamp(now_ms / 1000, UTC).day - 1) * DAY_MS


def ledger_dollars() -> ColumnElement[float]:
    """What a line of the ledger counts: the provider's bill once it is complete, our own account until then."""
    ours = LedgerDay.gpu_dollars + LedgerDay.disk_dollars + LedgerDay.traffic_dollars
    return func.coalesce(LedgerDay.billed_dollars, ours)


def held_sql(now_ms: int) -> ColumnElement[float]:
    """What an instance that has not ended may cost beyond its ledger: the rest of its reservation, or, where that is
    used up, the time since its account was last brought up to date."""
    rest, since = Instance.reserved_dollars - Instance.spent_dollars, open_sql(now_ms)
    return case((rest > since, rest), else_=since)


def committed(session: Session, scope: str, now_ms: int) -> Committed:
    """What counts against the cap of `scope` (day | month | user:NAME) now."""
    user = scope.removeprefix(USER) if scope.startswith(USER) else None
    held = select(func.sum(held_sql(now_ms))).where(Instance.state.not_in(ENDED))
    if user is not None:
        held = held.join(Run, Run.id == Instance.run_id).where(Run.created_by == user)
    return Committed(spent_since(session, begins_ms(scope, now_ms), user), session.scalar(held) or 0.0)


def spent_since(session: Session, day_ms: int, user: str | None = None) -> float:
    """Dollars of the ledger since that day (00:00 UTC); of one user's runs, or of all."""
    query = select(func.sum(ledger_dollars())).where(LedgerDay.day_ms >= day_ms)
    if user is not None:
        query = query.join(Instance, Instance.id == LedgerDay.instance_id)
        query = query.join(Run, Run.id == Instance.run_id).where(Run.created_by == user)
    return session.scalar(query) or 0.0


def left_dollars(context: Context, session: Session, run: Run) -> float | None:
    """What `run` may still have held: its `max_dollars` or the cap on each run, less what its machines before took.

    None: no limit. A machine of it that is not gone yet counts with the most that its end may cost.
    """
    cap = session.get(Cap, "run")
    limits = [limit for limit in (run.max_dollars, cap.dollars if cap else None) if limit is not None]
    if not limits:
        return None
    now = context.now_ms()
    before = session.scalars(select(Instance).where(Instance.run_id == run.id))
    return min(limits) - sum(most_dollars(context.settings, i, run.lease_s, now) for i in before)


def most_dollars(settings: Settings, instance: Instance, lease_s: int, now_ms: int) -> float:
    """The most that `instance` will have cost when it is gone."""
    so_far = spent(instance, now_ms)
    if instance.state in ENDED:
        return so_far
    if instance.state in WORKING or instance.rented_ms is None:
        return max(instance.reserved_dollars, so_far)
    return so_far + ending_dollars(settings, instance, lease_s)


def ending_dollars(settings: Settings, instance: Instance, lease_s: int) -> float:
    """What `instance` may cost from now on if its end begins now: the tail, and those of its bytes still to come."""
    price = price_of_instance(instance)
    tail = price.dollars_per_hour * tail_s(settings, lease_s) / 3600
    return tail + max(0.0, price.traffic_dollars - (instance.traffic_dollars or 0.0))


def refusal(context: Context, session: Session, run: Run, hold: float) -> str:
    """Why `hold` dollars can't be held for a rental of `run` now, '' where they can.

    To be called in the transaction that writes the intent: it lets one such transaction at a time go on, so that two
    can't both take the last of a cap. Waiting may help: a day ends, a machine is gone, somebody pays or raises a cap.
    """
    session.flush()
    session.execute(select(Controller.id).with_for_update())
    now = context.now_ms()
    if hold > 0:
        caps = {cap.scope: cap.dollars for cap in session.scalars(select(Cap))}
        for scope in ("day", "month", USER + run.created_by):
            if scope in caps and (why := _over(committed(session, scope, now), scope, caps[scope], hold)):
                return why
    return _credit_refusal(context, session, run.provider, hold, now)


def cap_words(scope: str) -> str:
    """What a cap is called in a sentence."""
    return f"{scope.removeprefix(USER)}'s cap for a month" if scope.startswith(USER) else f"the {scope}'s cap"


def _over(counts: Committed, scope: str, cap: float, hold: float) -> str:
    if counts.dollars + hold <= cap + 1e-9:
        return ""
    return (
        f"{cap_words(scope)} is {money(cap)}: {money(counts.spent)} are spent, {money(counts.held)} held, "
        f"and this needs {money(hold)}; raise it, or wait"
    )


def _credit_refusal(context: Context, session: Session, name: str, hold: float, now: int) -> str:
    if not provider(context, name).bills:
        return ""
    account = session.get(Account, name)
    if account is None or account.credit_dollars is None or account.read_ms is None:
        why = account.error if account else ""
        return f"the credit at {name} is not known yet{': ' + why if why else ''}; waiting for it to be read"
    if now - account.read_ms > CREDIT_OLD_MS:
        return f"the credit at {name} was last read at {clock(account.read_ms)}: {account.error}; waiting for it"
    floor = context.settings.credit_floor_dollars
    if account.credit_dollars < floor:
        return f"the credit at {name} is {money(account.credit_dollars)}, under the floor of {money(floor)}; pay in"
    query = select(func.sum(held_sql(now))).where(Instance.provider == name, Instance.state.not_in(ENDED))
    held = session.scalar(query) or 0.0
    if held + hold > account.credit_dollars + 1e-9:
        return (
            f"the credit at {name} is {money(account.credit_dollars)}, of which {money(held)} are held, and this needs "
            f"{money(hold)}; pay in, or wait"
        )
    return ""


def forecast(context: Context, session: Session, now_ms: int) -> Forecast:
    """When the first account is empty if all goes on as now, bytes apart."""
    ahead = [_forecast(session, account, now_ms) for account in session.scalars(select(Account))]
    return min(ahead, key=lambda f: f.exhausted_ms or now_ms + 10**15, default=Forecast(None))


def _forecast(session: Session, account: Account, now_ms: int) -> Forecast:
    running = (Instance.provider == account.provider, Instance.state.in_(BILLABLE), Instance.rented_ms.is_not(None))
    rate = session.scalar(select(func.sum(Instance.dollars_per_hour)).where(*running)) or 0.0
    credit, read = account.credit_dollars, account.read_ms
    if credit is None or read is None or rate <= 0:
        return Forecast(None, account.provider, credit, rate)
    end = read + int(max(0.0, credit) / rate * HOUR_MS)
    if end - now_ms > 3650 * DAY_MS:
        return Forecast(None, account.provider, credit, rate)
    text = f"{money(credit)} of credit at {account.provider} run out at {clock(end, now_ms)}, at ${rate:,.4g}/h"
    return Forecast(end, account.provider, credit, rate, text)


def clock(at_ms: int, now_ms: int | None = None) -> str:
    """`14:03 UTC`, with the date where it is not the day of `now_ms`."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    other_day = now_ms is not None and now_ms // DAY_MS != at_ms // DAY_MS
    return f"{at:%Y-%m-%d %H:%M} UTC" if other_day else f"{at:%H:%M} UTC"


def set_cap(context: Context, scope: str, dollars: float | None, actor: str, reason: str = "") -> str:
    """Set the cap of `scope` (run | day | month | user:NAME), or with None take it away; what that means now, in words.

    Raises ValueError for another scope, or for dollars that are not a sum.
    """
    if scope not in ("run", "day", "month") and not (scope.startswith(USER) and len(scope) > len(USER)):
        raise ValueError(f"there is no cap on {scope!r}; there are: run, day, month, user:NAME")
    if dollars is not None and not 0 <= dollars <= 1e9:
        raise ValueError("a cap is a sum of dollars, 0 or more")
    now = context.now_ms()
    with transaction(context) as session:
        cap = session.get(Cap, scope, with_for_update=True)
        before = cap.dollars if cap else None
        if dollars is None:
            if cap is not None:
                session.delete(cap)
        elif cap is None:
            session.add(Cap(scope=scope, dollars=dollars, set_by=actor, set_ms=now))
        else:
            cap.dollars, cap.set_by, cap.set_ms = dollars, actor, now
        counts = committed(session, scope, now) if scope != "run" else Committed(0.0, 0.0)
        means = _meaning(dollars, counts)
        data = {"scope": scope, "before": before, "dollars": dollars}
        record(session, now, actor, "cap.set", f"{scope}: {reason or means}", data=data)
    return means


def _meaning(dollars: float | None, counts: Committed) -> str:
    if dollars is None:
        return "no cap any more"
    if counts.dollars > dollars:
        return (
            f"{money(counts.dollars)} are spent or held already, over the new cap of {money(dollars)}: nothing more is "
            "rented, and nothing that runs is stopped"
        )
    return f"{money(dollars - counts.dollars)} of {money(dollars)} are left"
