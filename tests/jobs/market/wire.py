"""Vast.ai as one exchange after another, written out by the test; and a clock that sleeping moves."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import httpx
from pydantic import SecretStr

from jobs.market.providers.vast import VastProvider
from jobs.settings import Settings
from tests.fakes.vast.app import create_app
from tests.fakes.vast.market import Market

KEY = "0123456789abcdef" * 4
IMAGE = "registry.example/provefleet-payload@sha256:" + "ab" * 32
T0_MS = 1_780_000_000_000
# A test must not hang where the code under test would ask for ever.
MOST_REQUESTS = 500

Reply = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


class Wire(httpx.BaseTransport):
    """Answers each request with the next of `replies`; the last one again and again. Keeps what was asked, and when."""

    def __init__(self, *replies: Reply):
        self.replies = list(replies)
        self.requests: list[httpx.Request] = []
        self.times_ms: list[int] = []
        self.now_ms = T0_MS
        self.slept_s: list[float] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert len(self.requests) < MOST_REQUESTS, "it asks for ever"
        request.read()
        self.requests.append(request)
        self.times_ms.append(self.now_ms)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, httpx.Response):
            # A response is read once; the same reply may be given twice.
            return httpx.Response(reply.status_code, headers=reply.headers, content=reply.content)
        return reply(request)

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_ms += round(seconds * 1000)

    def body(self, at: int = 0) -> dict[str, Any]:
        """What was sent."""
        sent: dict[str, Any] = json.loads(self.requests[at].content)
        return sent

    def provider(self, **settings: Any) -> VastProvider:
        """The client under test on this wire, without Redis."""
        return _provider(self, lambda: self.now_ms, self.sleep, settings)


def on_market(market: Market, **settings: Any) -> VastProvider:
    """The client on a whole marketplace, in process; sleeping moves its clock. It has an account with `KEY`."""
    transport = httpx.WSGITransport(create_app(market))  # type: ignore[arg-type]
    return _provider(transport, lambda: market.now_ms, market.advance, settings)


def _provider(
    transport: httpx.BaseTransport, now_ms: Callable[[], int], sleep: Callable[[float], None], settings: dict[str, Any]
) -> VastProvider:
    fields: dict[str, Any] = {"vast_api_key": SecretStr(KEY), "payload_image": IMAGE, **settings}
    return VastProvider(
        Settings(**fields), redis=None, now_ms=now_ms, sleep=sleep, rng=random.Random(1), transport=transport
    )


def ok(**fields: Any) -> httpx.Response:
    return as_json(200, {"success": True, **fields})


def no(status: int, error: str, msg: str = "", **fields: Any) -> httpx.Response:
    """Vast's envelope of an error."""
    return as_json(status, {"success": False, "error": error, "msg": msg, **fields})


def as_json(status: int, body: Any) -> httpx.Response:
    """Also what no honest server sends: NaN, halves of characters."""
    return httpx.Response(status, content=json.dumps(body).encode())


def page(*rows: dict[str, Any], total: int | None = None, token: str | None = None) -> httpx.Response:
    """A page of the list of instances; `total` of all pages."""
    return ok(
        instances=list(rows), instances_found=len(rows), total_instances=len(rows) if total is None else total,
        label_counts={}, next_token=token,
    )  # fmt: skip
