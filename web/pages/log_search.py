"""Search in the logs of all runs. The page is sent as hits are found; closing it ends the search."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from flask import Blueprint, Response, stream_template

from jobs.domain.states import VERDICTS
from jobs.log_search import Hit, Progress, Scope, search
from logs.errors import StoreError
from logs.levels import LEVELS
from logs.query import BadQuery, Query, parse
from web import paging, queries, scope
from web.access import viewer
from web.paging import date_ms

blueprint = Blueprint("log_search", __name__)

AT_ONCE = 4
DEADLINE_S = 30.0
LIMIT = 200
_busy = threading.BoundedSemaphore(AT_ONCE)


@blueprint.get("/archive/search")
@viewer
def page() -> Response:
    """The form, and what it asks for, hit by hit."""
    text, regex = paging.arg("q", 400), paging.arg("regex", 4) == "on"
    asked = _scope()
    query, wrong = None, ""
    if text:
        try:
            query = parse(text, regex=regex)
        except BadQuery as error:
            wrong = str(error)
    progress = Progress()
    hits = _hits(query, asked, progress) if query else iter(())
    context = {"text": text, "regex": regex, "asked": asked, "wrong": wrong, "query": query, "limit": LIMIT}
    context |= {"outcomes": VERDICTS, "levels": LEVELS[1:], "hits": hits, "progress": progress}
    context["dates"] = {name: paging.arg(name, 10) for name in ("from", "to")}
    response = Response(stream_template("log_search.html", **context), mimetype="text/html")
    response.headers["X-Accel-Buffering"] = "no"  # a proxy in front must not wait for the end
    return response


def _scope() -> Scope:
    level = paging.arg("level", 8)
    to_ms = date_ms("to")
    return Scope(
        run=paging.arg("run", 40),
        machine=paging.arg("machine", 64),
        gpu=paging.arg("gpu", 40),
        image=paging.arg("image", 80),
        stream=paging.arg("stream", 32),
        outcome=paging.arg("outcome", 16),
        level=level if level in LEVELS else "",
        from_ms=date_ms("from"),
        to_ms=to_ms + queries.DAY_MS if to_ms is not None else None,
    )


def _hits(query: Query, asked: Scope, progress: Progress) -> Iterator[Hit | None]:
    """The search, with a session of its own: it outlives the request's. Says in `progress` what went wrong."""
    context = scope.context()
    if not _busy.acquire(blocking=False):
        progress.ended = f"{AT_ONCE} searches are under way; try again in a moment"
        return
    try:
        with context.sessions() as session:
            yield from search(
                session,
                context.store,
                query,
                asked,
                clock_s=time.monotonic,
                deadline_s=DEADLINE_S,
                limit=LIMIT,
                progress=progress,
            )
    except StoreError as error:
        progress.ended = f"the archive can't be read now: {error}"
    finally:
        _busy.release()
