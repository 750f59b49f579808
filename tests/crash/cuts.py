"""Cutting a process at its external calls. No call is listed: whatever leaves by a transport can be cut.

A cut is armed for the n-th external call from now. `Died` stands for SIGKILL: once it was raised, the process can
neither call nor write any more (`world` has its database refuse), whatever `except` or `finally` would like to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import httpx
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from tests.crash.s3 import ENDPOINT

T = TypeVar("T")

DIE_BEFORE, DIE_AFTER = "die before", "die after"
LOSE_REQUEST, LOSE_ANSWER = "lose the request", "lose the answer"
TWICE, LATE = "send it twice", "lose the answer, it arrives late"
KINDS = (DIE_BEFORE, DIE_AFTER, LOSE_REQUEST, LOSE_ANSWER, TWICE, LATE)
LATE_BY = 3  # external calls until a late request takes effect


class Died(BaseException):
    """This process was killed here."""


@dataclass
class Cuts:
    """Counts the external calls of one world, through all of its processes, and cuts those that are armed."""

    dead: bool = False
    calls: int = 0
    armed: dict[int, str] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    echo: Callable[[Callable[[], Any]], Any] = lambda call: call()
    """Makes a call that the network repeats or delivers late: whatever it meets, we did not send it at that moment."""
    _late: dict[int, Callable[[], Any]] = field(default_factory=dict)

    def arm(self, in_calls: int, kind: str) -> None:
        self.armed[self.calls + in_calls] = kind

    def calm(self) -> None:
        """Nothing more is cut; what is late arrives now."""
        self.armed.clear()
        self.deliver(all_of_it=True)

    def deliver(self, *, all_of_it: bool = False) -> None:
        for due in sorted(self._late):
            if all_of_it or due <= self.calls:
                self.echo(self._late.pop(due))

    def commit(self) -> None:
        """The process is about to commit: whatever was armed for this call kills it."""
        if self._next("commit"):
            self.die()

    def around(self, name: str, call: Callable[[], T], fail: Callable[[str], Exception], *, sent: bool = True) -> T:
        """Make one external call. `fail` builds the error of a connection that broke; `sent`: it can be sent again
        or arrive late (what goes to the marketplace)."""
        kind = self._next(name)
        if not kind:
            return call()
        if kind == DIE_BEFORE:
            self.die()
        if kind == LOSE_REQUEST:
            raise fail("connection reset by peer")
        if kind == LATE and sent:
            self._late[self.calls + LATE_BY] = call
            raise fail("timed out")
        told = call()
        if kind == TWICE and sent:
            return cast("T", self.echo(call))
        if kind == DIE_AFTER:
            self.die()
        if kind in (LOSE_ANSWER, LATE):
            raise fail("connection reset by peer")
        return told

    def _next(self, name: str) -> str:
        """The cut of this call, '' for none."""
        if self.dead:
            raise Died
        self.calls += 1
        self.deliver()
        kind = self.armed.pop(self.calls, "")
        if kind:
            self.done.append(f"{self.calls} {name}: {kind}")
        return kind

    def die(self) -> None:
        self.dead = True
        raise Died


class CutTransport(httpx.BaseTransport):
    """Around the transport to the marketplace."""

    def __init__(self, inner: httpx.BaseTransport, cuts: Cuts) -> None:
        self._inner, self._cuts = inner, cuts

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()

        def call() -> httpx.Response:
            response = self._inner.handle_request(request)
            response.read()
            return httpx.Response(response.status_code, headers=response.headers, content=response.content)

        return self._cuts.around(
            f"{request.method} {request.url.path}", call, lambda text: httpx.ReadError(text, request=request)
        )


def s3_error(text: str) -> Exception:
    """What botocore says of a connection that broke."""
    if text == "timed out":
        return ReadTimeoutError(endpoint_url=ENDPOINT)
    return EndpointConnectionError(endpoint_url=ENDPOINT)
