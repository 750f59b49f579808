"""Witnesses end with their run: they are never evidence, and a stranger's machine has had them long enough."""

from __future__ import annotations

from sqlalchemy import exists, select

from jobs.context import Context, current
from jobs.domain.models import Instance, Run
from jobs.domain.states import ENDED, VERDICTS
from jobs.domain.work import record, transaction
from jobs.prepare import witness_prefix
from logs.errors import StoreError

GONE = "witnesses deleted"


def tidy() -> None:
    """The RQ job, every minute by cron."""
    delete_witnesses(current())


def delete_witnesses(context: Context) -> None:
    """Delete the witnesses made for runs that have ended and hold no machine any more."""
    alive = exists().where(Instance.run_id == Run.id, Instance.state.not_in(ENDED))
    with context.sessions() as session:
        done = list(session.scalars(select(Run.id).where(Run.state.in_(VERDICTS), Run.stage != GONE, ~alive).limit(20)))
    for run_id in done:
        try:
            for info in context.store.list(witness_prefix(run_id)):
                context.store.delete(info.key)
        except StoreError:
            return  # the next minute tries again; nothing else waits for it
        with transaction(context) as session:
            run = session.get(Run, run_id)
            if run is not None:
                run.stage = GONE
                record(session, context.now_ms(), "tidy", "run.tidied", "its witnesses are deleted", run_id=run_id)
