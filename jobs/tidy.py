"""What is deleted by and by: witnesses with their run, which are never evidence and which a stranger's machine has had
long enough; objects of the archive that others replaced.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import delete, exists, select

from jobs.context import Context, current
from jobs.domain.archive_models import Discard
from jobs.domain.db import writing
from jobs.domain.models import Instance, Run
from jobs.domain.states import ENDED, VERDICTS
from jobs.domain.work import record, transaction
from jobs.prepare import witness_prefix
from logs.errors import StoreError

GONE = "witnesses deleted"
DISCARDS_AT_ONCE = 10_000
DELETERS = 8


def tidy() -> None:
    """The RQ job, every minute by cron."""
    delete_witnesses(current())
    delete_discarded(current())


def delete_discarded(context: Context) -> None:
    """Delete the objects that nothing refers to any more and whose readers have had their time."""
    with context.sessions() as session:
        query = select(Discard.object_key).where(Discard.due_ms <= context.now_ms()).order_by(Discard.due_ms)
        keys = list(session.scalars(query.limit(DISCARDS_AT_ONCE)))
    for at in range(0, len(keys), 500):
        some = keys[at : at + 500]
        try:
            with ThreadPoolExecutor(DELETERS, thread_name_prefix="tidy") as pool:
                list(pool.map(context.store.delete, some))
        except StoreError:
            return  # the next minute tries again
        with writing(context.sessions) as session:
            session.execute(delete(Discard).where(Discard.object_key.in_(some)))


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
