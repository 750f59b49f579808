"""What goes wrong between the market and whoever asks: armed by route, once or several times.

Kinds, each with `times`:

* `reset_before`, `reset_after`: the connection breaks before or after the call took effect.
* `timeout_before`, `timeout_after`: no answer ever.
* `refused`: nobody listens.
* `500_before`, `503_after`, ...: an error status, of the gateway (HTML) from 502 on, of the API (JSON) otherwise.
* `429_text`, `429_detail`, `429_error`: too many requests in that form; `retry_after` seconds, `where` header or body.
* `success_false`, `success_false_after`: HTTP 200 that says no.
* `html`, `empty`, `redirect`: a maintenance page, nothing, another host (`to`). The call took no effect.
* `truncated`, `not_json`, `a_list`, `huge`: an answer that can't be read, after it took effect.
* `reply`: `status`, `body` and `headers` as given, without effect.
* `lie`: success, without effect.
* `drop`: the answer without `fields`. `change`: what `change(body)` makes of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.fakes.vast.errors import NoAnswer, NoConnection, Reset

STATUS = re.compile(r"([45]\d\d)_(before|after)")
_KINDS = (
    "reset_before reset_after timeout_before timeout_after refused success_false success_false_after html empty"
    " redirect truncated not_json a_list huge reply lie drop change 429_text 429_detail 429_error"
)
KINDS = frozenset(_KINDS.split())
MAINTENANCE = b"<!DOCTYPE html><html><head><title>Vast.ai | Maintenance</title></head><body>Back soon.</body></html>"
GATEWAY = "<html><head><title>{0}</title></head><body><center><h1>{0}</h1></center><hr>nginx</body></html>"
REASONS = {502: "502 Bad Gateway", 503: "503 Service Temporarily Unavailable", 504: "504 Gateway Time-out"}


@dataclass(slots=True)
class Reply:
    """An answer on its way. `body` is JSON, or bytes that are sent as they are."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass(slots=True)
class Fault:
    """One trouble on one route. `skip` calls go well before it begins; `only` picks calls by their query."""

    route: str
    kind: str
    times: int = 1
    skip: int = 0
    only: Callable[[dict[str, str]], bool] | None = None
    options: dict[str, Any] = field(default_factory=dict)


class Faults:
    """Armed faults by route; those of one route take their turns."""

    def __init__(self, routes: frozenset[str]):
        self._routes = routes
        self._armed: dict[str, list[Fault]] = {}
        self.done: list[Fault] = []
        self.elsewhere: set[str] = set()
        """Hosts that redirects lead to."""

    def arm(
        self,
        route: str,
        kind: str,
        times: int = 1,
        skip: int = 0,
        only: Callable[[dict[str, str]], bool] | None = None,
        **options: Any,
    ) -> Fault:
        """`route` as `METHOD /path`, with or without its `/{id}`. Raises ValueError for what does not exist."""
        if kind not in KINDS and not STATUS.fullmatch(kind):
            raise ValueError(f"no fault is called {kind!r}: one of {', '.join(sorted(KINDS))}, or like 504_after")
        fault = Fault(self.route(route), kind, times, skip, only, options)
        self._armed.setdefault(fault.route, []).append(fault)
        if kind == "redirect":
            options.setdefault("to", "https://elsewhere.example/api/")
            self.elsewhere.add(urlsplit(options["to"]).netloc)
        return fault

    def route(self, name: str) -> str:
        """The full name of a route. Raises ValueError."""
        name = name.rstrip("/")
        for candidate in (name, f"{name}/{{id}}"):
            if candidate in self._routes:
                return candidate
        raise ValueError(f"no route is called {name!r}: one of {', '.join(sorted(self._routes))}")

    def take(self, route: str, query: dict[str, str]) -> Fault | None:
        """The fault of this call."""
        waiting = self._armed.get(route)
        if not waiting or (waiting[0].only is not None and not waiting[0].only(query)):
            return None
        fault = waiting[0]
        if fault.skip > 0:
            fault.skip -= 1
            return None
        fault.times -= 1
        if fault.times <= 0:
            waiting.pop(0)
        self.done.append(fault)
        return fault

    def clear(self) -> None:
        self._armed.clear()

    @property
    def armed(self) -> list[Fault]:
        return [fault for waiting in self._armed.values() for fault in waiting]


def before(fault: Fault) -> Reply | None:
    """What answers in place of the market; None when the call goes through first."""
    kind, options = fault.kind, fault.options
    if kind == "reset_before":
        raise Reset("connection reset by peer")
    if kind == "timeout_before":
        raise NoAnswer("timed out")
    if kind == "refused":
        raise NoConnection("connection refused")
    status = STATUS.fullmatch(kind)
    if status and status[2] == "before":
        return error(int(status[1]))
    if kind.startswith("429_"):
        return too_many(kind[4:], 3.0, options.get("retry_after"), options.get("where", "header"))
    match kind:
        case "success_false":
            msg = options.get("msg", "Something went wrong. Please try again.")
            return Reply(200, {"success": False, "error": options.get("error", "internal"), "msg": msg})
        case "html":
            return Reply(200, MAINTENANCE, content_type="text/html")
        case "empty":
            return Reply(200, b"")
        case "redirect":
            return Reply(308, b"", {"Location": options["to"]}, "text/html")
        case "reply":
            return Reply(options.get("status", 200), options.get("body"), dict(options.get("headers", {})))
        case "lie":
            return Reply(200, {"success": True, **options.get("body", {})})
    return None


def after(fault: Fault, reply: Reply) -> Reply:
    """What becomes of the market's own answer."""
    kind, options, body = fault.kind, fault.options, reply.body
    if kind == "reset_after":
        raise Reset("connection reset by peer")
    if kind == "timeout_after":
        raise NoAnswer("timed out")
    status = STATUS.fullmatch(kind)
    if status:
        return error(int(status[1]))
    match kind:
        case "success_false_after":
            return Reply(200, {"success": False, "error": "internal", "msg": options.get("msg", "Please try again.")})
        case "truncated":
            reply.body = json.dumps(body).encode()[: options.get("size", 40)]
        case "not_json":
            reply.body = b"OK"
        case "a_list":
            reply.body = [body]
        case "huge":
            reply.body = b'{"success": true, "padding": "' + b"x" * options.get("size", 64 << 20) + b'"}'
        case "drop":
            reply.body = {name: value for name, value in body.items() if name not in options["fields"]}
        case "change":
            reply.body = options["change"](body)
    return reply


def error(status: int) -> Reply:
    if status in REASONS:
        return Reply(status, GATEWAY.format(REASONS[status]).encode(), content_type="text/html")
    return Reply(status, {"success": False, "error": "internal_error", "msg": "Internal server error"})


def too_many(form: str, threshold_s: float, retry_after: float | None, where: str) -> Reply:
    """The forms of 429: plain text, JSON `detail`, JSON `error`. `where`: header or body."""
    text = f"API requests too frequent endpoint threshold={threshold_s:g}"
    reply = Reply(429)
    match form:
        case "text":
            reply.body, reply.content_type = text.encode(), "text/plain"
        case "detail":
            reply.body = {"detail": text}
        case _:
            reply.body = {"success": False, "error": "too_many_requests", "msg": text}
    if retry_after is not None:
        if where == "body" and isinstance(reply.body, dict):
            reply.body["retry_after"] = retry_after
        else:
            reply.headers["Retry-After"] = f"{retry_after:g}"
    return reply
