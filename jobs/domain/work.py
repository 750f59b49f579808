"""Who works on a row, and when it is looked at again.

A row that needs a job carries `wake_at_ms`; enqueueing a job at once, after the commit, is only an
acceleration. A job holds a row by a claim that expires by itself, so a worker that dies at any step
delays it by `CLAIM_S` at most, and the token fences off a worker that comes back from the dead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

from sqlalchemy import and_, exists, or_, update
from sqlalchemy.orm import Session, aliased

from jobs.domain.db import rows_changed, writing
from jobs.domain.models import Event, Instance, Run
from jobs.domain.states import LOST_AFTER_MS
from jobs.domain.tables import Json

if TYPE_CHECKING:
    from jobs.context import Context

CLAIM_S = 12

INSTANCE_JOBS = {
    "renting": "deploy",
    "benchmarking": "benchmark",
    "proving": "benchmark",
    "sealing": "collect_logs",
    "destroying": "destroy",
}
RUN_JOBS = {"queued": "prepare", "active": "prepare"}

Row = TypeVar("Row", Run, Instance)


def job_of(row: Run | Instance) -> str | None:
    """The job that moves `row` on from its state, None where only the machine or an operator can."""
    return (INSTANCE_JOBS if isinstance(row, Instance) else RUN_JOBS).get(row.state)


def wake(session: Session, row: Run | Instance, now_ms: int) -> None:
    """Have the job of `row` enqueued after the commit (see `transaction`), or by reconcile if that is lost."""
    job = job_of(row)
    if job is None:
        return
    row.job_attempt = (row.job_attempt or 0) + 1
    due = now_ms + LOST_AFTER_MS
    # Never later than it was: a machine that calls every second must not hold off what is due, while Redis is down.
    row.wake_at_ms = due if row.wake_at_ms is None else min(row.wake_at_ms, due)
    session.flush()
    session.info.setdefault("wake", []).append((job, row.id, row.job_attempt))


@contextmanager
def transaction(context: Context) -> Iterator[Session]:
    """One writing transaction; after its commit the jobs that `wake` named are enqueued."""
    with writing(context.sessions) as session:
        yield session
    for job, row_id, attempt in session.info.pop("wake", []):
        context.enqueue(job, row_id, attempt)


def record(
    session: Session,
    now_ms: int,
    actor: str,
    kind: str,
    reason: str = "",
    *,
    run_id: str | None = None,
    instance_id: str | None = None,
    data: Json | None = None,
) -> None:
    """Append an event: something that happened besides a change of state."""
    session.add(
        Event(
            at_ms=now_ms, actor=actor, kind=kind, reason=reason, run_id=run_id, instance_id=instance_id, data=data or {}
        )
    )


class Claim:
    """A row held by this job: `row` as it was when claimed, `token` to guard every write with."""

    def __init__(self, context: Context, model: type[Run] | type[Instance], row_id: str, token: str):
        self.context, self.model, self.row_id, self.token = context, model, row_id, token

    def extend(self) -> bool:
        """Hold on for another `CLAIM_S`. False: the claim was lost."""
        with writing(self.context.sessions) as session:
            row = self.mine(session)
            if row is None:
                return False
            until = self.context.now_ms() + CLAIM_S * 1000
            if row.wake_at_ms == row.claim_until_ms:
                row.wake_at_ms = until
            row.claim_until_ms = until
        return True

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        """An error of ours must not hold the row until the claim expires: let go, look again soon, let RQ see it."""
        try:
            yield
        except BaseException:
            self.release(wake_in_s=3)
            raise

    @contextmanager
    def kept_alive(self) -> Iterator[None]:
        """Extend the claim from a thread while a slow step (making a key) runs. The thread dies with the process."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(CLAIM_S / 3) and self.extend():
                pass

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(timeout=5)

    def mine(self, session: Session) -> Run | Instance | None:
        """The row, if this claim still holds it: the guard of every write that is not a transition."""
        found = session.get(self.model, self.row_id, with_for_update=True, populate_existing=True)
        row = cast("Run | Instance | None", found)
        return row if row is not None and row.claim_token == self.token else None

    def release(self, *, wake_in_s: float | None = None) -> None:
        """Let go; look again in `wake_in_s`, unless somebody asked for sooner meanwhile."""
        with writing(self.context.sessions) as session:
            row = self.mine(session)
            if row is None:
                return
            if row.wake_at_ms == row.claim_until_ms:
                row.wake_at_ms = None
            row.claim_token = row.claim_until_ms = None
            if wake_in_s is not None:
                due = self.context.now_ms() + int(wake_in_s * 1000)
                row.wake_at_ms = due if row.wake_at_ms is None else min(row.wake_at_ms, due)


def take(
    context: Context, model: type[Row], row_id: str, states: tuple[str, ...], *, alone: bool = False
) -> tuple[Claim, Row] | None:
    """Claim a row that is in one of `states` and held by nobody. None: drop the job, the row is held or moved on.

    While held, `wake_at_ms` is the end of the claim, so that the row is looked at again if we die; a wake that
    arrives meanwhile sets another time, which survives our release. `alone`: only while no other row of its kind
    is held. (Not by RQ's own limit: a job that was killed keeps its place there for minutes.)
    """
    now, token = context.now_ms(), context.new_id()
    until = now + CLAIM_S * 1000
    with writing(context.sessions) as session:
        wanted = (model.id == row_id, model.state.in_(states))
        free = or_(model.claim_until_ms.is_(None), model.claim_until_ms < now)
        if alone:
            other = aliased(model)
            free = and_(free, ~exists().where(other.id != row_id, other.claim_until_ms >= now))
        mine = {"claim_token": token, "claim_until_ms": until, "wake_at_ms": until}
        if not rows_changed(session, update(model).where(*wanted, free).values(**mine)):
            # Held by another job: what woke us still wants looking at, right after that job is done.
            due = now + (2000 if alone else 1000)
            later = or_(model.wake_at_ms.is_(None), model.wake_at_ms > due)
            rows_changed(session, update(model).where(*wanted, later).values(wake_at_ms=due))
            return None
        row = session.get_one(model, row_id, populate_existing=True)
    return Claim(context, model, row_id, token), row
