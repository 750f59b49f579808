"""What is remembered of a machine: marks, each with its evidence, that fade, can be appealed and withdrawn.

A mark is keyed on the machine, never on its host: a host of a hundred good machines may have one bad one. Its weight
halves every half-life and it counts until it weighs a quarter. Each earlier mark of the same kind, even a faded one,
doubles the half-life, since what came back once comes back again. What a mark never does is end a rental: whoever
works on the machine now goes on, and a mark made by hand meanwhile wants to be confirmed.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from jobs.domain.market_models import Machine, Mark
from jobs.domain.models import Instance
from jobs.domain.states import BILLABLE, RENTING
from jobs.domain.work import record

SLOW, BROKEN, UNSTABLE, WRONG_SPECS = "slow", "broken", "unstable", "wrong_specs"
KINDS = (BROKEN, WRONG_SPECS, UNSTABLE, SLOW)
"""The kinds of marks, worst first."""
DAY_MS = 86_400_000
HALF_LIFE_DAYS = {SLOW: 14, BROKEN: 21, UNSTABLE: 10, WRONG_SPECS: 45}
"""A crash may be a driver that is updated next week; a card that is not the one advertised stays that card."""
HALF_LIVES_THAT_COUNT = 2
LONGEST = 8
"""Times the half-life that repeated marks can reach."""
JOBS = ("benchmark", "agent", "watch", "deploy", "reconcile")
"""Who marks by what was seen; anybody else is an operator."""


FAILED = "machine.failed"
"""The event of a rental that came to nothing by the machine's own fault: the chance of failure comes from these."""
MARKET = ("outbid", "no_credit", "expired")
"""Why a provider stops machines that have done nothing wrong."""


class MarkRefused(ValueError):
    """The mark can't be made, appealed or withdrawn: why, and what to do."""


def mark(
    session: Session,
    now_ms: int,
    provider: str,
    machine_id: str,
    kind: str,
    reason: str,
    by: str,
    run_id: str | None = None,
    instance_id: str | None = None,
) -> Mark:
    """Mark a machine, in the caller's transaction; `run_id` and `instance_id` lead to the evidence.

    The same evidence twice is one mark, so that jobs may repeat. Raises `MarkRefused` for an unknown kind, for no
    reason, and for a machine that was never seen.
    """
    if kind not in KINDS:
        raise MarkRefused(f"a machine is marked one of {', '.join(KINDS)}, not {kind!r}")
    if not reason.strip():
        raise MarkRefused("say why: whoever chooses machines next reads it")
    machine = session.get(Machine, (provider, machine_id))
    if machine is None:
        raise MarkRefused(f"{provider} has shown no machine {machine_id}; scan first")
    here = (Mark.provider == provider, Mark.machine_id == machine_id, Mark.kind == kind)
    if instance_id is not None:
        same = session.scalar(select(Mark).where(*here, Mark.instance_id == instance_id))
        if same is not None:
            return same
    before = session.scalar(select(func.count()).select_from(Mark).where(*here, Mark.withdrawn_ms.is_(None))) or 0
    half_life_ms = HALF_LIFE_DAYS[kind] * DAY_MS * min(2**before, LONGEST)
    made = Mark(
        provider=provider,
        machine_id=machine_id,
        host_id=machine.host_id,
        kind=kind,
        reason=reason.strip(),
        run_id=run_id,
        instance_id=instance_id,
        by=by,
        at_ms=now_ms,
        fades_ms=now_ms + HALF_LIVES_THAT_COUNT * half_life_ms,
        appeal="",
        appealed_by="",
        withdrawn_by="",
        withdrawn_reason="",
    )
    session.add(made)
    told = {"provider": provider, "machine": machine_id, "kind": kind}
    record(session, now_ms, by, "machine.marked", reason.strip(), run_id=run_id, instance_id=instance_id, data=told)
    session.flush()
    return made


def failed(session: Session, now_ms: int, instance: Instance, reason: str, by: str) -> None:
    """Remember that this rental came to nothing. It is no mark: one failure may be chance, and counts as that.

    What the market did (outbid, no credit left, the contract's end) is held against no machine.
    """
    if (instance.seen or {}).get("stopped_why") in MARKET:
        return
    told = {"provider": instance.provider, "machine": instance.machine_id}
    record(session, now_ms, by, FAILED, reason, run_id=instance.run_id, instance_id=instance.id, data=told)


def weight(mark: Mark, now_ms: int) -> float:
    """1 for a fresh mark, 1/2 after its half-life, and on; 0 once it was withdrawn."""
    if mark.withdrawn_ms is not None:
        return 0.0
    half_life_ms = max(mark.fades_ms - mark.at_ms, 1) / HALF_LIVES_THAT_COUNT
    return float(0.5 ** (max(now_ms - mark.at_ms, 0) / half_life_ms))


def marks_of(
    session: Session, pairs: Iterable[tuple[str, str]] | None, now_ms: int
) -> dict[tuple[str, str], list[Mark]]:
    """The marks that count now, worst first, by (provider, machine id); of all machines when `pairs` is None."""
    query = select(Mark).where(Mark.fades_ms > now_ms, Mark.withdrawn_ms.is_(None))
    if pairs is not None:
        wanted = set(pairs)
        if not wanted:
            return {}
        query = query.where(tuple_(Mark.provider, Mark.machine_id).in_(wanted))
    found: dict[tuple[str, str], list[Mark]] = {}
    for row in session.scalars(query.order_by(Mark.at_ms.desc(), Mark.id.desc())):
        found.setdefault((row.provider, row.machine_id), []).append(row)
    for rows in found.values():
        rows.sort(key=lambda m: KINDS.index(m.kind) if m.kind in KINDS else len(KINDS))
    return found


def current(session: Session, now_ms: int, provider: str, machine_id: str) -> Mark | None:
    """The worst mark that counts now; None for a machine without one."""
    return next(iter(marks_of(session, [(provider, machine_id)], now_ms).get((provider, machine_id), [])), None)


def in_use(session: Session, provider: str, machine_id: str) -> list[Instance]:
    """Our rentals on this machine that have not ended: whoever marks it is told of them, none of them is touched."""
    live = Instance.state.in_((RENTING, *BILLABLE))
    query = select(Instance).where(Instance.provider == provider, Instance.machine_id == machine_id, live)
    return list(session.scalars(query.order_by(Instance.created_ms)))


def mark_by_hand(
    session: Session,
    now_ms: int,
    provider: str,
    machine_id: str,
    kind: str,
    reason: str,
    operator: str,
    confirmed: bool = False,
) -> Mark:
    """An operator's own mark. Raises `MarkRefused`, naming the runs, while the machine works for someone and the
    operator has not confirmed; what runs there goes on in any case."""
    busy = in_use(session, provider, machine_id)
    if busy and not confirmed:
        runs = ", ".join(sorted({i.run_id or f"instance {i.id}" for i in busy}))
        raise MarkRefused(f"the machine works for {runs} now; confirm to mark it all the same: they go on")
    return mark(session, now_ms, provider, machine_id, kind, reason, operator)


def appeal(session: Session, now_ms: int, mark_id: int, by: str, text: str) -> Mark:
    """Write down why a mark is thought to be wrong; it counts until it is withdrawn. Raises `MarkRefused`."""
    row = _standing(session, mark_id)
    if not text.strip():
        raise MarkRefused("say what is wrong with the mark: whoever decides reads it")
    row.appeal, row.appealed_by, row.appealed_ms = text.strip(), by, now_ms
    _tell(session, now_ms, by, "mark.appealed", row, text)
    return row


def withdraw(session: Session, now_ms: int, mark_id: int, by: str, reason: str) -> Mark:
    """The mark counts no more, as if it had not been made; it stays on record. Raises `MarkRefused`."""
    row = _standing(session, mark_id)
    if not reason.strip():
        raise MarkRefused("say why it is withdrawn: the reason is kept with the mark")
    row.withdrawn_ms, row.withdrawn_by, row.withdrawn_reason = now_ms, by, reason.strip()
    _tell(session, now_ms, by, "mark.withdrawn", row, reason)
    return row


def refuted(session: Session, now_ms: int, provider: str, machine_id: str, kinds: Iterable[str], by: str) -> None:
    """Withdraw the marks of `kinds` that a new measurement has shown to be past; those by operators stay."""
    for row in marks_of(session, [(provider, machine_id)], now_ms).get((provider, machine_id), []):
        if row.kind in kinds and row.by in JOBS:
            withdraw(session, now_ms, row.id, by, "it has passed a benchmark since")


def _standing(session: Session, mark_id: int) -> Mark:
    row = session.get(Mark, mark_id, with_for_update=True)
    if row is None:
        raise MarkRefused("there is no such mark")
    if row.withdrawn_ms is not None:
        raise MarkRefused("this mark was withdrawn already")
    return row


def _tell(session: Session, now_ms: int, by: str, kind: str, row: Mark, text: str) -> None:
    told = {"provider": row.provider, "machine": row.machine_id, "kind": row.kind, "mark": row.id}
    record(session, now_ms, by, kind, text.strip(), run_id=row.run_id, instance_id=row.instance_id, data=told)
