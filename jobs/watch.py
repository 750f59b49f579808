"""Reading the provider's list: what vanished, what is in trouble, what is not as ordered, what is ours but unknown.

A list that is partial, failing or suspiciously empty proves nothing: nothing is done on its word. One that was acted on
is not acted on again. What a provider merely fails to say is given time; what it says for certain is believed at once.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, update

from jobs.context import Context
from jobs.domain.controller import controller_id
from jobs.domain.db import rows_changed, writing
from jobs.domain.instances import label_of, leave
from jobs.domain.market_models import Snapshot
from jobs.domain.models import Instance, Run
from jobs.domain.states import BILLABLE, ENDED, LOADING, SEALING, WORKING
from jobs.domain.work import record, transaction, wake
from jobs.market import accrual, listing, provider
from jobs.market.providers.base import EXITED, OFFLINE, RUNNING, STOPPED, UNKNOWN, ProviderError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from jobs.market.providers.base import Listing, ProviderInstance

MISSING, FINE = "missing", ""
AT_ONCE = 100
# (lists in a row, milliseconds since the first of them) that a trouble must last before it is believed. A marketplace
# lists new rentals late, restarts a container within seconds, and loses sight of a host for minutes.
PATIENCE_LOCAL = {EXITED: (2, 0), MISSING: (3, 0), UNKNOWN: (3, 180_000)}
PATIENCE_REMOTE = {
    EXITED: (2, 0),
    MISSING: (3, 60_000),
    UNKNOWN: (3, 180_000),
    OFFLINE: (3, 120_000),
    "restarting": (3, 30_000),
}
HEARD_MS = 60_000
PRICE_MARGIN = 1.01
WORDS = {
    "outbid": "it was outbid",
    "no_credit": "the provider stopped it: the account has no credit",
    "expired": "its contract ended",
    "stopped": "the provider stopped it",
}


def watch(context: Context, name: str) -> None:
    """Read one provider's list and act on what it proves."""
    with context.sessions() as session:
        before = _live_names(session, name)
    try:
        seen = listing.read(context, name)
    except ProviderError:
        return  # each job that needs the provider says so itself; silence here is no proof of anything
    if not seen.complete or not _first_time(context, name, seen.begun_ms):
        return
    with context.sessions() as session:
        live = list(session.scalars(select(Instance).where(Instance.provider == name, Instance.state.in_(BILLABLE))))
        # Either side of the list: what was placed or destroyed meanwhile is no stranger.
        known = before | _live_names(session, name)
    by_label = {i.label: i for i in seen.instances}
    if len(live) > 1 and not by_label:
        return
    working = [i for i in live if i.state in WORKING]
    news = [i.id for i in working if _is_news(i, by_label.get(i.label), seen.begun_ms)]
    patience = PATIENCE_REMOTE if provider(context, name).remote else PATIENCE_LOCAL
    for begin in range(0, len(news), AT_ONCE):
        some = select(Instance).where(Instance.id.in_(news[begin : begin + AT_ONCE]), Instance.state.in_(WORKING))
        with transaction(context) as session:
            # In one order, so that two that lock several never wait for each other.
            for instance in session.scalars(some.order_by(Instance.id).with_for_update()).all():
                _check(context, session, instance, by_label.get(instance.label), seen.begun_ms, patience)
    _adopt(context, name, seen, known)


def _first_time(context: Context, name: str, begun_ms: int) -> bool:
    """True for the one that may act on the list begun then."""
    newer = (Snapshot.provider == name, Snapshot.watched_ms < begun_ms)
    with writing(context.sessions) as session:
        return rows_changed(session, update(Snapshot).where(*newer).values(watched_ms=begun_ms)) == 1


def _live_names(session: Session, name: str) -> set[str]:
    """Labels and provider ids of everything that is not over: a label that is, must not be listed any more."""
    mine = select(Instance.label, Instance.provider_id).where(Instance.provider == name, Instance.state.not_in(ENDED))
    return {name for row in session.execute(mine) for name in row if name is not None}


def _trouble(instance: Instance, seen: ProviderInstance | None, begun_ms: int) -> str:
    """What is wrong with it in this list; FINE where nothing is."""
    if seen is None:
        # A list that was begun before the rental was written down may not know it yet.
        return FINE if instance.state == LOADING and begun_ms <= instance.state_ms else MISSING
    if seen.status == EXITED and seen.facts.get("intended") == "running":
        return "restarting"
    if seen.status in (UNKNOWN, OFFLINE) and begun_ms - (instance.heard_ms or 0) < HEARD_MS:
        return FINE  # the provider lost sight of it, and we did not
    return seen.status if seen.status in (EXITED, UNKNOWN, OFFLINE) else FINE


def _verdict(instance: Instance, seen: ProviderInstance | None) -> tuple[str, str]:
    """(kind, why) where the list says for certain that the machine is of no use; ("", "") else."""
    if seen is None:
        return "", ""
    if seen.status == STOPPED:
        why = WORDS.get(seen.stopped_why, WORDS["stopped"])
        return "instance.stopped", f"{why}{_detail(seen)}"
    if seen.boot_failed:
        return "instance.boot_failed", f"the machine can't start: {seen.boot_failed}"
    asked = instance.bid_dollars_per_hour is not None
    if seen.interruptible is not None and seen.interruptible != asked:
        kinds = {True: "interruptible", False: "on demand"}
        return "instance.wrong_kind", f"asked for {kinds[asked]}, but what was rented is {kinds[seen.interruptible]}"
    return "", ""


def _too_dear(session: Session, mine: Instance, seen: ProviderInstance | None) -> tuple[str, str]:
    """The price may change between search and rental: one over the run's limit is not paid."""
    run = session.get(Run, mine.run_id) if mine.run_id else None
    limit = run.max_dollars_per_hour if run else None
    if seen is None or limit is None or seen.dollars_per_hour <= limit * PRICE_MARGIN:
        return "", ""
    return "instance.too_dear", f"costs ${seen.dollars_per_hour:.4g}/h, over the limit of ${limit:.4g}/h"


def _is_news(instance: Instance, seen: ProviderInstance | None, begun_ms: int) -> bool:
    """Whether the list says anything of the instance that is not in its row already."""
    if _trouble(instance, seen, begun_ms) or instance.missed_lists or _verdict(instance, seen)[0]:
        return True
    return seen is not None and (instance.provider_status != seen.status or instance.seen != vars(seen))


def _check(
    context: Context,
    session: Session,
    mine: Instance,
    seen: ProviderInstance | None,
    begun_ms: int,
    patience: dict[str, tuple[int, int]],
) -> None:
    """Note what the list says of one working instance, and leave the machine where that is final."""
    now, trouble = context.now_ms(), _trouble(mine, seen, begun_ms)
    _note(session, mine, seen, now)
    mine.missed_lists = mine.missed_lists + 1 if trouble else 0
    mine.missed_ms = (begun_ms if mine.missed_ms is None else mine.missed_ms) if trouble else None
    kind, why = _verdict(mine, seen)
    kind, why = (kind, why) if kind else _too_dear(session, mine, seen)
    if kind:
        record(session, now, "reconcile", kind, why, run_id=mine.run_id, instance_id=mine.id)
        leave(context, session, mine, why, "reconcile")
    elif trouble:
        lists, for_ms = patience.get(trouble, (3, 60_000))
        if mine.missed_lists >= lists and begun_ms - (mine.missed_ms or begun_ms) >= for_ms:
            mine.vanished_ms = now if trouble != OFFLINE else None
            leave(context, session, mine, _vanished(mine, seen, trouble, now), "reconcile")


def _note(session: Session, mine: Instance, seen: ProviderInstance | None, now: int) -> None:
    """Keep what the provider says of it; a text that changes while it loads is progress."""
    mine.provider_status = seen.status if seen else MISSING
    if seen is None:
        return
    old: dict[str, Any] = mine.seen or {}
    if mine.state == LOADING and (old.get("detail"), old.get("status")) != (seen.detail, seen.status):
        mine.moved_ms = now
    if mine.state == LOADING and seen.status == RUNNING != old.get("status"):
        text = "the provider lists it as running: its image is there"  # what was paid for the pull ends here
        record(session, now, "reconcile", "instance.running", text, run_id=mine.run_id, instance_id=mine.id)
    word = seen.facts.get("actual")
    if seen.status == UNKNOWN and word not in (None, UNKNOWN, old.get("facts", {}).get("actual")):
        text = f"the provider calls its state {word!r}, which this version does not know"
        record(session, now, "reconcile", "provider.unheard_status", text, run_id=mine.run_id, instance_id=mine.id)
    if accrual.raise_price(session, mine, seen.dollars_per_hour):
        text = f"it costs ${seen.dollars_per_hour:.4g}/h, more than was offered"
        record(session, now, "reconcile", "instance.repriced", text, run_id=mine.run_id, instance_id=mine.id)
    mine.seen = dict(vars(seen))


def _vanished(mine: Instance, seen: ProviderInstance | None, trouble: str, now: int) -> str:
    done = (mine.progress or {}).get("done", 0)
    how = {OFFLINE: "went offline", UNKNOWN: "was lost sight of"}.get(trouble, "vanished")
    what = f"machine {how} at {datetime.fromtimestamp(now / 1000, UTC):%H:%M:%S} UTC in stage {mine.stage}"
    count = f", after {done} of {mine.progress['total']} proofs" if (mine.progress or {}).get("total") else ""
    return what + count + (_detail(seen) if seen else "")


def _detail(seen: ProviderInstance) -> str:
    return f" ({seen.detail})" if seen.detail else ""


def _adopt(context: Context, name: str, seen: Listing, known: set[str]) -> None:
    """Our label with an unknown uuid, or with one that is over (a rental that was listed too late for us to
    believe in it), is adopted, sealed and destroyed. Other labels, look-alikes included, are never touched."""
    with transaction(context) as session:
        ours = re.compile(re.escape(label_of(controller_id(session, context), "")) + "[0-9a-f]{32}")
    for found in seen.instances:
        if ours.fullmatch(found.label) and not known & {found.label, found.provider_id}:
            with transaction(context) as session:
                _adopt_one(context, session, name, found)
            known |= {found.label, found.provider_id}


def _adopt_one(context: Context, session: Session, name: str, found: ProviderInstance) -> None:
    now = context.now_ms()
    before = session.execute(select(Instance.id, Instance.run_id, Instance.state).where(Instance.label == found.label))
    dead = before.first()
    deadline = now + context.settings.evidence_deadline_s * 1000
    instance = Instance(
        id=context.new_id(),
        run_id=None,
        label=f"{found.label}:{found.provider_id}"[:100] if dead else found.label,
        provider=name,
        offer_id=f"orphan-{found.provider_id}"[:64],
        machine_id=found.machine_id,
        host_id=found.host_id,
        provider_id=found.provider_id,
        state=SEALING,
        state_ms=now,
        reason="an orphan of ours, found by its label",
        stage="sealing",
        stage_ms=now,
        stage_deadline_ms=deadline,
        moved_ms=now,
        dollars_per_hour=found.dollars_per_hour,
        reserved_dollars=0.0,
        seen=dict(vars(found)),
        created_ms=now,
        rented_ms=now,
        evidence_deadline_ms=deadline,
        provider_status=found.status,
    )
    session.add(instance)
    whose = f"of instance {dead.id}, which is {dead.state}" if dead else "nobody's"
    text = f"{found.label} was {whose}; it is sealed and destroyed"
    run_id = dead.run_id if dead else None
    record(session, now, "reconcile", "instance.adopted", text, run_id=run_id, instance_id=instance.id)
    wake(session, instance, now)
