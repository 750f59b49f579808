"""`reconcile`: makes SQL, the providers and their bills agree, whatever crashed; a process of its own, with one leader.

Each tick: enqueue what is due (or run it here, when Redis is down), enforce every deadline, read each
provider's list, adopt what is ours and unknown, keep the account of dollars. It decides by SQL alone. What waits for a
provider runs in a thread of its own, so that a slow marketplace holds up no deadline.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import or_, select
from sqlalchemy.exc import SQLAlchemyError

from jobs import benchmark, collect, deploy, destroy, queue
from jobs.context import Context, use
from jobs.domain import deadlines, roles
from jobs.domain.db import writing
from jobs.domain.models import Instance, Run
from jobs.domain.work import wake
from jobs.market import billing, provider_names
from jobs.watch import watch

if TYPE_CHECKING:
    from jobs.settings import Settings

log = logging.getLogger(__name__)

ROLE = "reconcile"
TICK_S = 1.0
LEADER_MS = 15_000
WATCH_EVERY_MS = 2_000
# With Redis down, steps run here; those of many machines are spread over ticks, so that deadlines are kept meanwhile.
INLINE_MS = 10_000

Spawn = Callable[..., None]
"""`spawn(name, call, *arguments)`: do it now or beside us, but never twice at once under one name."""

INLINE: dict[str, Callable[[str, int], None]] = {
    "deploy": deploy.deploy,
    "benchmark": benchmark.benchmark,
    "collect_logs": collect.collect_logs,
    "destroy": destroy.destroy,
}


def lead(context: Context, holder: str) -> bool:
    """Take or renew the one leader row. False: another process leads."""
    return roles.take(context.sessions, ROLE, holder, context.now_ms(), LEADER_MS)


def resign(context: Context, holder: str) -> None:
    """Let the next process lead at once."""
    roles.resign(context.sessions, ROLE, holder)


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
        if context.now_ms() - now > INLINE_MS:
            return  # what is left is due again after `work.LOST_AFTER_MS`
        INLINE[job](row_id, attempt)


def at_once(name: str, call: Callable[..., Any], *arguments: Any) -> None:
    """The `Spawn` that waits."""
    del name
    call(*arguments)


class Beside:
    """The `Spawn` of threads, one for each name; while it still runs, asking again changes nothing."""

    def __init__(self) -> None:
        self._threads: dict[str, threading.Thread] = {}

    def __call__(self, name: str, call: Callable[..., Any], *arguments: Any) -> None:
        running = self._threads.get(name)
        if running is None or not running.is_alive():
            self._threads[name] = threading.Thread(target=_guarded, args=(name, call, *arguments), daemon=True)
            self._threads[name].start()


def _guarded(name: str, call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except (SQLAlchemyError, OSError, RuntimeError, ValueError):
        log.exception("%s failed; the next tick tries again", name)


def tick(context: Context, watched_ms: int, spawn: Spawn = at_once) -> int:
    """One round; `watched_ms` is when the providers were last read, the new value is returned."""
    wake_due(context)
    deadlines.enforce(context)
    now = context.now_ms()
    if now - watched_ms < WATCH_EVERY_MS:
        return watched_ms
    for name in provider_names(context.settings):
        spawn(f"watch:{name}", watch, context, name)
    spawn("billing", billing.tick, context)
    return now


def run(settings: Settings) -> None:
    """Tick until told to stop. An error of one tick is logged and the next one tries again: this must not end."""
    context = Context(settings)
    use(context)
    holder = f"{socket.gethostname()}:{os.getpid()}:{context.new_id()[:8]}"
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    watched_ms, beside = 0, Beside()
    while not stop.wait(TICK_S):
        try:
            if lead(context, holder):
                watched_ms = tick(context, watched_ms, beside)
        except (SQLAlchemyError, OSError, RuntimeError, ValueError):
            log.exception("this tick failed; the next one tries again")
    resign(context, holder)
