"""Server-sent events of a run's and an instance's page.

    event: part    data: {"id": "head", "html": ...}     replace that part
    event: lines   data: [[stream, number, text], ...]   append to the tail
    event: notice  data: {"text": ...}                   '' when all is well again
    event: reset   the watcher's position is unknown here; everything follows
    event: end     nothing more will happen; don't come back

What comes last of a batch carries an `id` to resume from (`Last-Event-ID`, or `?after=`). A comment comes every 15 s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import cast

from flask import Blueprint, Flask, Response, abort, current_app, request
from sqlalchemy.exc import SQLAlchemyError

from web import queries, scope, sessions
from web.access import viewer
from web.hub import Channel, Hub, event

MAX_STREAMS = 224
"""Of gunicorn's 256 threads: the rest always serve pages. Memory: docs/performance.md."""
HEARTBEAT_S = 15.0
SESSION_CHECKS_S = 30.0
RETRY_AFTER_S = 15

blueprint = Blueprint("stream", __name__)


class Streams:
    """The open streams of this process, counted."""

    def __init__(self, hub: Hub, most: int = MAX_STREAMS):
        self.hub = hub
        self._free = threading.BoundedSemaphore(most)

    def open(self, kind: str, key: str) -> tuple[Channel, Callable[[], None]] | None:
        """A channel and what gives it up again; None when all streams are taken."""
        if not self._free.acquire(blocking=False):
            return None
        channel = self.hub.join(kind, key)

        def close() -> None:
            self.hub.leave(channel)
            self._free.release()

        return channel, close


def attach(app: Flask) -> None:
    app.extensions["provefleet_streams"] = Streams(Hub(app, app.extensions[scope.KEY]))
    app.register_blueprint(blueprint)


def events(
    channel: Channel,
    position: str,
    is_live: Callable[[], bool],
    clock: Callable[[], float],
    heartbeat_s: float = HEARTBEAT_S,
) -> Iterator[str]:
    """The stream of one watcher, from `position` on; ends with the run, or when the session is over (`is_live`)."""
    yield "retry: 2000\n\n"
    checked = clock()
    while True:
        batch = channel.wait(position, heartbeat_s)
        if clock() - checked >= SESSION_CHECKS_S:
            checked = clock()
            if not is_live():
                yield event("end", {"why": "signed out"}, position)
                return
        if batch is None:
            yield ": still here\n\n"
            continue
        # One write for all of a batch.
        told = event("reset", {}) + batch.events if batch.fresh and position else batch.events
        position = batch.position
        if batch.ended:
            yield told + event("end", {"why": "ended"}, position)
            return
        yield told


def _open(kind: str, key: str) -> Response:
    app = cast(Flask, current_app._get_current_object())  # type: ignore[attr-defined]
    streams: Streams = app.extensions["provefleet_streams"]
    opened = streams.open(kind, key)
    if opened is None:
        told = (
            f"Too many live pages are open ({MAX_STREAMS}); this one asks again by itself. /archive has every line.\n"
        )
        busy = Response(told, 503, mimetype="text/plain")
        busy.headers["Retry-After"] = str(RETRY_AFTER_S)
        return busy
    channel, close = opened
    digest = sessions.token_digest()

    def is_live() -> bool:
        try:
            with app.app_context():
                return sessions.is_live(digest)
        except SQLAlchemyError:
            return True  # the database is away: the page says so; nobody is signed out for it

    position = request.headers.get("Last-Event-ID") or request.args.get("after", "")
    response = Response(events(channel, position[:80], is_live, time.monotonic), mimetype="text/event-stream")
    response.headers["X-Accel-Buffering"] = "no"
    response.call_on_close(close)
    # A stream may last for hours: the request's own session must not hold a connection for it.
    scope.db().close()
    return response


@blueprint.get("/runs/<run_id>/stream")
@viewer
def run_stream(run_id: str) -> Response:
    if queries.load_run(scope.db(), run_id) is None:
        abort(404)
    return _open("run", run_id)


@blueprint.get("/instances/<instance_id>/stream")
@viewer
def instance_stream(instance_id: str) -> Response:
    if queries.load_instance(scope.db(), instance_id) is None:
        abort(404)
    return _open("instance", instance_id)
