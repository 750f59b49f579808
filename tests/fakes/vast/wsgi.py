"""From a request to its answer: fault, limit, key, handler, fault."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl

from tests.fakes.vast import api_account, api_instances, api_market, auth, control, faults, objects
from tests.fakes.vast.accounts import Key
from tests.fakes.vast.call import Call
from tests.fakes.vast.errors import Refused
from tests.fakes.vast.faults import Reply
from tests.fakes.vast.limits import TooMany, Violation
from tests.fakes.vast.market import Market, Seen
from tests.fakes.vast.paths import Route, find

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
OLD_HOST = "vast.ai"
STATUS_LINES = {200: "200 OK", 308: "308 Permanent Redirect", 404: "404 Not Found", 429: "429 Too Many Requests"}

HANDLERS: dict[str, Callable[[Call], Any]] = {
    "POST /api/v0/bundles": api_market.bundles,
    "PUT /api/v0/search/asks": api_market.asks,
    "GET /api/v0/gpu_types": api_market.gpu_types,
    "GET /api/v0/gpu_names/unique": api_market.gpu_names,
    "GET /api/v0/benchmarks": api_market.benchmarks,
    "PUT /api/v0/asks/{id}": api_market.create_one,
    "POST /api/v0/asks/bulk": api_market.create_bulk,
    "PUT /api/v0/launch_instance": api_market.launch,
    "GET /api/v1/instances": api_instances.list_v1,
    "GET /api/v0/instances": api_instances.list_v0,
    "GET /api/v0/instances/filters": api_instances.filters,
    "GET /api/v0/instances/{id}": api_instances.show,
    "PUT /api/v0/instances/{id}": api_instances.update,
    "PUT /api/v0/instances": api_instances.update_bulk,
    "DELETE /api/v0/instances/{id}": api_instances.destroy,
    "DELETE /api/v0/instances": api_instances.destroy_bulk,
    "PUT /api/v0/instances/reboot/{id}": api_instances.reboot,
    "PUT /api/v0/instances/recycle/{id}": api_instances.recycle,
    "PUT /api/v0/instances/bid_price/{id}": api_instances.bid_price,
    "PUT /api/v0/instances/update_template/{id}": api_instances.update_template,
    "PUT /api/v0/instances/request_logs/{id}": api_instances.request_logs,
    "PUT /api/v0/instances/command/{id}": api_instances.command,
    "GET /api/v0/instances/{id}/ssh": api_instances.ssh_list,
    "POST /api/v0/instances/{id}/ssh": api_instances.ssh_attach,
    "DELETE /api/v0/instances/{id}/ssh/{key_id}": api_instances.ssh_detach,
    "GET /api/v0/instances/balance/{id}": api_instances.balance,
    "GET /api/v0/users/current": api_account.current,
    "GET /api/v0/ssh": api_account.ssh_list,
    "POST /api/v0/ssh": api_account.ssh_create,
    "PUT /api/v0/ssh/{id}": api_account.ssh_update,
    "DELETE /api/v0/ssh/{id}": api_account.ssh_delete,
    "GET /api/v0/charges": api_account.charges,
    "GET /api/v1/invoices": api_account.invoices,
    "GET /api/v0/notification-types": api_account.notification_types,
    "GET /api/v0/webhooks": api_account.webhooks,
    "POST /api/v0/webhooks": api_account.webhook_create,
    "DELETE /api/v0/webhooks/{id}": api_account.webhook_delete,
    "POST /api/v0/webhooks/{id}/test": api_account.webhook_test,
    "POST /api/v0/webhooks/{id}/rotate-secret": api_account.webhook_rotate,
    "POST /api/v0/commands/rclone": api_account.rclone,
}


class App:
    """`market` behind HTTP. Faults that break the connection leave as exceptions of httpx: see `errors`."""

    def __init__(self, market: Market):
        self.market = market

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        market = self.market
        path = environ.get("PATH_INFO", "/")
        with market.lock:
            market.clock.catch_up()
            if objects.is_object(path):
                return objects.serve(market, environ, start_response)
            if path.startswith(control.PREFIX):
                reply = self._control(environ, path)
            elif environ.get("HTTP_HOST") == OLD_HOST:
                reply = Reply(308, b"", {"Location": f"https://console.vast.ai{path}"}, "text/html")
            else:
                reply = self._answer(environ, path)
        return _send(reply, start_response, market.now_ms / 1000 + market.skew_s)

    def _control(self, environ: Environ, path: str) -> Reply:
        query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
        name = path.removeprefix(control.PREFIX)
        return control.answer(self.market, environ["REQUEST_METHOD"], name, query, _body(environ))

    def _answer(self, environ: Environ, path: str) -> Reply:
        """Everything an API call goes through; noted, whatever comes of it."""
        market = self.market
        method = environ["REQUEST_METHOD"]
        query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
        text = auth.key_text(environ.get("HTTP_AUTHORIZATION", ""), query)
        address = environ.get("REMOTE_ADDR") or "127.0.0.1"
        route, numbers = find(method, path)
        key = market.keys.get(text)
        name = route.name if route else f"{method} {path}"
        seen = Seen(name, key.name if key else address, market.now_ms, path, query, _body(environ))
        query.pop("api_key", None)
        market.requests.append(seen)
        host = environ.get("HTTP_HOST", "")
        try:
            if host in market.faults.elsewhere:
                reply = self._stranger(seen, host, text)
            elif route is None:
                raise Refused(404, "not_found", f"{name} is not a route")
            else:
                reply = self._through(route, seen, text, address, numbers)
        except Refused as no:
            reply = Reply(no.status, no.body)
        seen.status = reply.status
        return reply

    def _through(self, route: Route, seen: Seen, text: str, address: str, numbers: list[int]) -> Reply:
        market = self.market
        fault = market.faults.take(route.name, seen.query)
        if fault is not None:
            reply = faults.before(fault)
            if reply is not None:
                return reply
        over = market.limits.check(route.name, seen.identity, address, market.now_ms)
        if over is not None:
            return _over(over)
        key = self._key(route, text, numbers)
        if isinstance(seen.body, bytes):
            raise Refused(400, "invalid_request", "Invalid json body", drop=("success",))
        call = Call(market, route.name, key, numbers, seen.query, seen.body)
        try:
            reply = Reply(200, HANDLERS[route.name](call))
        except Refused as no:
            reply = Reply(no.status, no.body)
        if market.extra_fields and isinstance(reply.body, dict):
            reply.body = {**reply.body, **market.extra_fields}
        return reply if fault is None else faults.after(fault, reply)

    def _stranger(self, seen: Seen, host: str, text: str) -> Reply:
        """Another host, to which a redirect has led: whoever sends it the key has given it away."""
        if text:
            what = f"key sent to {host}"
            self.market.violations.append(Violation(what, seen.route, seen.identity, seen.at_ms))
        return Reply(200, {"success": True})

    def _key(self, route: Route, text: str, numbers: list[int]) -> Key | None:
        instance_id = numbers[0] if numbers and "/instances/" in route.name else None
        own = route.name in ("PUT /api/v0/instances/{id}", "DELETE /api/v0/instances/{id}")
        return auth.identify(self.market.keys, text, route.scope, instance_id, own)


def _body(environ: Environ) -> Any:
    """The JSON that was sent, None for nothing, bytes for what is no JSON."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    raw = environ["wsgi.input"].read(length) if length else b""
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def _over(over: TooMany) -> Reply:
    """A 429 in one of its forms."""
    if over.form == "quota":
        body = {"success": False, "error": "search_quota_exceeded", "msg": "Daily search quota exceeded."}
        return Reply(429, body, {"X-RateLimit-Reset": str(over.reset_s)})
    wait_s = math.ceil(over.wait_s) if over.retry_after else None
    return faults.too_many(over.form, over.threshold_s, wait_s, over.retry_after)


def _send(reply: Reply, start_response: StartResponse, wall_s: float) -> Iterable[bytes]:
    raw = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    headers = [
        ("Content-Type", reply.content_type),
        ("Content-Length", str(len(raw))),
        ("Date", formatdate(wall_s, usegmt=True)),
        *reply.headers.items(),
    ]
    start_response(STATUS_LINES.get(reply.status) or f"{reply.status} Status", headers)
    return [raw]
