"""Reading the provider's list: what vanished, what ended, and what is ours but unknown.

A list that is partial, failing or suspiciously empty proves nothing: nothing is done on its word.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import select

from jobs.context import Context
from jobs.domain.controller import controller_id
from jobs.domain.instances import fail, label_of
from jobs.domain.models import Instance
from jobs.domain.states import BILLABLE, ENDED, SEALING, WORKING
from jobs.domain.work import record, transaction, wake
from jobs.market import provider
from jobs.market.providers.base import EXITED, ProviderError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from jobs.market.providers.base import Listing, ProviderInstance

EXITED_LISTS, MISSING_LISTS = 2, 3


def watch(context: Context, name: str) -> None:
    """Read one provider's list and act on what it proves."""
    with context.sessions() as session:
        before = _live_names(session, name)
    try:
        listing = provider(context, name).list()
    except ProviderError:
        return  # each job that needs the provider says so itself; silence here is no proof of anything
    if not listing.complete:
        return
    with context.sessions() as session:
        live = list(session.scalars(select(Instance).where(Instance.provider == name, Instance.state.in_(BILLABLE))))
        # Either side of the list: what was placed or destroyed meanwhile is no stranger.
        known = before | _live_names(session, name)
    by_label = {i.label: i for i in listing.instances}
    if len(live) > 1 and not by_label:
        return
    for instance in live:
        if instance.state in WORKING:
            _check(context, instance, by_label.get(instance.label))
    _adopt(context, name, listing, known)


def _live_names(session: Session, name: str) -> set[str]:
    """Labels and provider ids of everything that is not over: a label that is, must not be listed any more."""
    mine = select(Instance.label, Instance.provider_id).where(Instance.provider == name, Instance.state.not_in(ENDED))
    return {name for row in session.execute(mine) for name in row if name is not None}


def _check(context: Context, instance: Instance, seen: ProviderInstance | None) -> None:
    """Count lists in a row that show the instance ended or not at all; a single one is never believed."""
    ended = seen is None or seen.status == EXITED
    status = seen.status if seen else "missing"
    if not ended and instance.missed_lists == 0 and instance.provider_status == status:
        return
    with transaction(context) as session:
        mine = session.get(Instance, instance.id)
        if mine is None or mine.state not in WORKING:
            return
        mine.provider_status = status
        mine.missed_lists = mine.missed_lists + 1 if ended else 0
        if mine.missed_lists < (MISSING_LISTS if seen is None else EXITED_LISTS):
            return
        now = context.now_ms()
        mine.vanished_ms = now
        done = (mine.progress or {}).get("done", 0)
        what = f"machine vanished at {datetime.fromtimestamp(now / 1000, UTC):%H:%M:%S} UTC in stage {mine.stage}"
        detail = f", after {done} of {mine.progress['total']} proofs" if (mine.progress or {}).get("total") else ""
        fail(context, session, mine, what + detail + (f" ({seen.detail})" if seen and seen.detail else ""), "reconcile")


def _adopt(context: Context, name: str, listing: Listing, known: set[str]) -> None:
    """Our label with an unknown uuid, or with one that is over (a rental that was listed too late for us to
    believe in it), is adopted, sealed and destroyed. Other labels are never touched."""
    with transaction(context) as session:
        prefix = label_of(controller_id(session, context), "")
    for found in listing.instances:
        if found.label.startswith(prefix) and not known & {found.label, found.provider_id}:
            with transaction(context) as session:
                _adopt_one(context, session, name, found)
            known |= {found.label, found.provider_id}


def _adopt_one(context: Context, session: Session, name: str, found: ProviderInstance) -> None:
    now = context.now_ms()
    taken = session.scalar(select(Instance.id).where(Instance.label == found.label)) is not None
    instance = Instance(
        id=context.new_id(),
        run_id=None,
        label=f"{found.label}:{found.provider_id}"[:100] if taken else found.label,
        provider=name,
        offer_id=f"orphan-{found.provider_id}"[:64],
        machine_id=found.machine_id,
        host_id="",
        provider_id=found.provider_id,
        state=SEALING,
        state_ms=now,
        reason="an orphan of ours, found by its label",
        stage="sealing",
        stage_ms=now,
        stage_deadline_ms=now,
        moved_ms=now,
        progress={},
        round=1,
        dollars_per_hour=found.dollars_per_hour,
        reserved_dollars=0.0,
        spent_dollars=0.0,
        facts={},
        telemetry={},
        created_ms=now,
        rented_ms=now,
        evidence_deadline_ms=now,
        job_attempt=0,
        missed_lists=0,
        absent_lists=0,
        evidence="",
        evidence_text="",
        provider_status=found.status,
        bootstrap_sha256="",
        image_expected="",
        image_ran="",
    )
    session.add(instance)
    record(session, now, "reconcile", "instance.adopted", f"{found.label} was nobody's", instance_id=instance.id)
    wake(session, instance, now)
