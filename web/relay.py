"""The archive through the machine app, for machines that could not reach it: files down, the last evidence up.

URLs are signed (`jobs.domain.relay`), so no token is asked for. A file may be large and its reader slow: so many are
served at once, a few for each instance, and a reader slower than 8 KiB/s is cut off. The threads that are left keep the
leases. Whoever is turned away or cut off comes again and goes on where it was.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from flask import Blueprint, Response, current_app, request

from jobs.context import Context, current
from jobs.domain import relay
from jobs.domain.agents import AgentRefused
from logs.errors import NoSuchObject
from logs.store import OpenedObject
from logs.wire import MAX_EMERGENCY_BYTES

AT_ONCE, AT_ONCE_AN_INSTANCE = 12, 5  # of 32 threads; an agent fetches four files at once
BLOCK_S = 30.0  # for each block of the archive's, 256 KiB

routes = Blueprint("relay", __name__)


class Busy:
    """How many relayed bodies are on their way, in all and of each instance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Counter[str] = Counter()

    def enter(self, instance_id: str) -> None:
        """Raises `AgentRefused` 503 when there is no room."""
        with self._lock:
            if self._of.total() >= AT_ONCE or self._of[instance_id] >= AT_ONCE_AN_INSTANCE:
                raise AgentRefused(503, "busy", "too many files are being sent; come again")
            self._of[instance_id] += 1

    def leave(self, instance_id: str) -> None:
        with self._lock:
            self._of[instance_id] -= 1
            self._of += Counter()  # drops the zeros

    @contextmanager
    def room(self, instance_id: str) -> Iterator[None]:
        self.enter(instance_id)
        try:
            yield
        finally:
            self.leave(instance_id)


class Sending:
    """A body on its way and the place that it takes. The place is given back once, at the latest when nobody holds the
    body any more: a server may fail to close what it was sending to a reader that went away.
    """

    def __init__(self, opened: OpenedObject, leave: Callable[[], None]) -> None:
        self._opened = opened
        self._leave = leave
        self._lock = threading.Lock()
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._opened)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._opened.close()
        finally:
            self._leave()

    def __del__(self) -> None:
        self.close()


@routes.get("/files/<instance_id>/<path:key>")
def file(instance_id: str, key: str) -> Response:
    context = _context()
    _admit(context, relay.GET, instance_id, key)
    try:
        total = context.store.head(key).bytes
        begin, end = _range(total)
        busy = _busy()
        busy.enter(instance_id)
        try:
            opened = context.store.open_range(key, begin, end - begin)
        except BaseException:
            busy.leave(instance_id)
            raise
    except NoSuchObject as error:
        raise AgentRefused(404, "no_file", "this file is not in the archive any more") from error
    body = Sending(opened, lambda: busy.leave(instance_id))
    _pace()
    response = Response(body, 206 if request.range else 200, mimetype="application/octet-stream")
    response.content_length = opened.bytes
    response.headers["Accept-Ranges"] = "bytes"
    if request.range:
        response.headers["Content-Range"] = f"bytes {begin}-{end - 1}/{total}"
    return response


@routes.put("/emergency/<instance_id>")
def emergency(instance_id: str) -> Response:
    context = _context()
    key = relay.emergency_key_of(context, instance_id)
    _admit(context, relay.PUT, instance_id, key)
    length = request.content_length
    if length is None:
        raise AgentRefused(411, "length_required", "send Content-Length; chunked bodies are not taken")
    if length > MAX_EMERGENCY_BYTES:
        raise AgentRefused(413, "too_large", f"an emergency upload is at most {MAX_EMERGENCY_BYTES:,} bytes")
    with _busy().room(instance_id):
        stored = relay.store_emergency(context, key, cast("Any", request.stream), length)
    if stored is None:
        raise AgentRefused(400, "cut_off", "fewer bytes came than were announced; send it again")
    return Response(status=200 if stored else 412)


def _context() -> Context:
    return current_app.extensions["context"] or current()


def _busy() -> Busy:
    busy: Busy = current_app.extensions["relay"]
    return busy


def _admit(context: Context, method: str, instance_id: str, key: str) -> None:
    told = (request.args.get("expires", ""), request.args.get("signature", ""))
    if no := relay.refusal(context, method, instance_id, key, *told):
        raise AgentRefused(*no)


def _range(total: int) -> tuple[int, int]:
    """The first byte that is asked for, and the one after the last. Raises `AgentRefused` 416."""
    if request.range is None:
        return 0, total
    found = request.range.range_for_length(total)
    if found is None or found[1] is None:
        raise AgentRefused(416, "bad_range", f"one range inside of {total} bytes is served, no other")
    return found[0], found[1]


def _pace() -> None:
    """A socket whose reader stalls gives its thread back: sending a block has a limit as a whole."""
    connection = request.environ.get("gunicorn.socket")
    if connection is not None:
        connection.settimeout(BLOCK_S)
