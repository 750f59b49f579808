"""`reconcile`: makes SQL, the provider and the bill agree, whatever crashed; a process of its own, with one leader.

Each tick: enqueue what is due (or run it here, when Redis is down), enforce every deadline, read the
provider's list, adopt what is ours and unknown, keep the account of dollars. It decides by SQL alone.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from sqlalchemy import or_, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from jobs import benchmark, collect, deploy, destroy, queue
from jobs.context import Context, use
from jobs.domain import deadlines
from jobs.domain.db import rows_changed, writing
from jobs.domain.models import Instance, Leader, Run
from jobs.domain.work import wake
from jobs.watch import watch

if TYPE_CHECKING:
    from jobs.settings import Settings

log = logging.getLogger(__name__)

ROLE = "reconcile"
TICK_S = 1.0
LEADER_MS = 15_000
WATCH_EVERY_MS = 2_000
PROVIDERS = ("local",)

INLINE: dict[str, Callable[[str, int], None]] = {
    "deploy": deploy.deploy,
    "benchmark": benchmark.benchmark,
    "collect_logs": collect.collect_logs,
    "destroy": destroy.destroy,
}


def lead(context: Context, holder: str) -> bool:
    """Take or renew the one leader row. False: another process leads."""
    now = context.now_ms()
    try:
        with writing(context.sessions) as session:
            free = or_(Leader.holder == holder, Leader.expires_ms < now)
            mine = update(Leader).where(Leader.role == ROLE, free).values(holder=holder, expires_ms=now + LEADER_MS)
            if rows_changed(session, mine):
                return True
            if session.get(Leader, ROLE) is not None:
                return False
            session.add(Leader(role=ROLE, holder=holder, expires_ms=now + LEADER_MS))
            return True
    except IntegrityError:
        return False


def resign(context: Context, holder: str) -> None:
    """Let the next process lead at once."""
    with writing(context.sessions) as session:
        session.execute(update(Leader).where(Leader.role == ROLE, Leader.holder == holder).values(expires_ms=0))


def wake_due(context: Context) -> None:
    """Enqueue the job of every row whose time has come and that nobody holds."""
    now = context.now_ms()
    inline = []
    redis_up = True
    model: type[Instance] | type[Run]
    for model in (Instance, Run):
        free = or_(model.claim_until_ms.is_(None), model.claim_until_ms < now)
        with context.sessions() as session:
            due = list(session.scalars(select(model.id).where(model.wake_at_ms <= now, free).limit(500)))
        for row_id in due:
            with writing(context.sessions) as session:
                row = cast("Run | Instance | None", session.get(model, row_id))
                if row is None or row.wake_at_ms is None or row.wake_at_ms > now:
                    continue
                row.wake_at_ms = None  # for a state that no job moves on, the wake was left over
                wake(session, row, now)
                asked = session.info.pop("wake", [])
            for job, asked_id, attempt in asked:
                try:
                    if redis_up:
                        queue.enqueue(context, job, asked_id, attempt)
                except queue.QueueUnavailable as error:
                    redis_up = False
                    log.warning("working without Redis: %s", error)
                if not redis_up and job in INLINE:
                    inline.append((job, asked_id, attempt))
    for job, row_id, attempt in inline:
        INLINE[job](row_id, attempt)


def tick(context: Context, watched_ms: int) -> int:
    """One round; `watched_ms` is when the provider was last read, the new value is returned."""
    wake_due(context)
    deadlines.enforce(context)
    now = context.now_ms()
    if now - watched_ms < WATCH_EVERY_MS:
        return watched_ms
    for name in PROVIDERS:
        watch(context, name)
    return now


def run(settings: Settings) -> None:
    """Tick until told to stop. An error of one tick is logged and the next one tries again: this must not end."""
    context = Context(settings)
    use(context)
    holder = f"{socket.gethostname()}:{os.getpid()}:{context.new_id()[:8]}"
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    watched_ms = 0
    while not stop.wait(TICK_S):
        try:
            if lead(context, holder):
                watched_ms = tick(context, watched_ms)
        except (SQLAlchemyError, OSError, RuntimeError, ValueError):
            log.exception("this tick failed; the next one tries again")
    resign(context, holder)
