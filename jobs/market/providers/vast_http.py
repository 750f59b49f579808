"""One request to Vast.ai and what can come of it: pacing, "too frequent", lost answers, keys that are not accepted.

The account key travels in one header, to one address, over https (or loopback) only. It is in no error text, no log and
no exception chain: what httpx raises holds the request, so none of it leaves this module.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import random
import ssl
import string
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from jobs.market.pacing import Busy, Pacer
from jobs.market.providers.base import KeyRefused, ProviderUnavailable, SearchQuotaUsedUp
from jobs.market.providers.vast_fields import number, printable, text

# At its usual level it logs each address, and that of a log is all that one needs for reading it.
logging.getLogger("httpx").setLevel(logging.WARNING)

CONNECT_S, SILENCE_S, WHOLE_ANSWER_S = 10.0, 30.0, 60.0
MAX_ANSWER_BYTES = 16 << 20
MAX_TEXT = 300
# The documented intervals are the least that is allowed; requests of ours don't all take equally long to get there.
MARGIN = 1.1
PATIENCE_S = 60.0
MAX_PAUSE_S = 120.0
SENDS = 4
_KEY_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_.~+/=:")


@dataclass(frozen=True)
class Route:
    """One endpoint: `interval_s` between two calls is documented, `penalty_s` the least pause after "too frequent".

    `repeatable` is False where sending it again could do it twice.
    """

    name: str
    method: str
    path: str
    interval_s: float = 1.0
    penalty_s: float = 2.0
    repeatable: bool = True


SEARCH = Route("search", "POST", "/api/v0/bundles/", 6.0, 6.0)
CREATE = Route("create", "PUT", "/api/v0/asks/{id}/", 4.5, 12.0, repeatable=False)
LIST = Route("list", "GET", "/api/v1/instances/")
SHOW = Route("show", "GET", "/api/v0/instances/{id}/", 2.0)
DESTROY = Route("destroy", "DELETE", "/api/v0/instances/{id}/", 3.0, 3.0)
REQUEST_LOGS = Route("request_logs", "PUT", "/api/v0/instances/request_logs/{id}/")
ACCOUNT = Route("account", "GET", "/api/v0/users/current/")
CHARGES = Route("charges", "GET", "/api/v0/charges/")


@dataclass(frozen=True)
class Answer:
    """What came back. `data` is its JSON; where it is none, None, and `words` its first characters.

    Neither is shown: some answers hold keys.
    """

    status: int
    data: Any = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    words: str = field(repr=False, default="")

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON object; empty where it is none."""
        return self.data if isinstance(self.data, dict) else {}

    @property
    def good(self) -> bool:
        """A JSON object with a 2xx status that does not say `success: false`."""
        return 200 <= self.status < 300 and isinstance(self.data, dict) and self.data.get("success", True) is True

    @property
    def code(self) -> str:
        """Vast's name of the error, e.g. no_such_ask; '' where it gives none."""
        return text(self.fields, "error", 100)

    @property
    def message(self) -> str:
        """What it says about itself."""
        said = next((m for key in ("msg", "message", "detail") if (m := text(self.fields, key, MAX_TEXT))), "")
        return ": ".join(part for part in (self.code, said or self.words) if part)


class VastHttp:
    """Sends requests of one account. Each takes a connection of its own: a kept one that the other side has just
    closed would leave a create in doubt for no reason, and pacing leaves nothing to gain from keeping it."""

    def __init__(
        self,
        base_url: str,
        key: str,
        pacer: Pacer,
        now_ms: Callable[[], int],
        rng: random.Random,
        transport: httpx.BaseTransport | None = None,
    ):
        self._base_url = base_url
        self._key = key
        self._pacer = pacer
        self._now_ms = now_ms
        self._rng = rng
        self._transport = transport

    def __repr__(self) -> str:
        return f"VastHttp({self._base_url})"

    def call(
        self, route: Route, *, item: str = "", params: Mapping[str, str] | None = None, body: Any = None
    ) -> Answer:
        """The answer to a request, which may say that it was refused (see `Answer.good`). Keeps the route's distance.

        `item` fills in the path's `{id}`. Requests that may be repeated are, when their answer got lost. Raises
        `KeyRefused`, `SearchQuotaUsedUp`, `ProviderUnavailable`.
        """
        lost = ""
        for attempt in range(SENDS):
            self._wait(route)
            answer, lost = self.exchange(route, item, params, body)
            if answer is None or answer.status >= 500:
                if not route.repeatable:
                    break
                lost = lost or self.says(answer)
                self._pause(route, answer, 1.0, attempt)
                continue
            if answer.status != 429:
                self._named(route, answer)
                return answer
            lost = self.says(answer)
            self._too_frequent(route, answer, attempt)
        if route.repeatable:
            raise ProviderUnavailable(f"Vast.ai did not answer {route.name}: {lost}; it is asked again later")
        if answer is None:
            raise ProviderUnavailable(f"Vast.ai's answer to {route.name} got lost ({lost}): it may have happened")
        return answer

    def says(self, answer: Answer | None) -> str:
        """An answer in a few words, for a person."""
        if answer is None:
            return "no answer"
        return self.scrub(f"HTTP {answer.status}, {answer.message or 'without a reason'}")

    def scrub(self, words: str) -> str:
        """`words` without our key in them, on one line, and not too long."""
        for secret in {self._key, quote(self._key, safe="")} - {""}:
            words = words.replace(secret, "[our key]")
        return printable(words)[:MAX_TEXT]

    def unusable(self, route: Route, answer: Answer) -> ProviderUnavailable:
        """For raising, where an answer is not what the route promises."""
        return ProviderUnavailable(f"Vast.ai's answer to {route.name} can't be used: {self.says(answer)}")

    def download(self, url: str, headers: Mapping[str, str], max_bytes: int) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and the last `max_bytes` of what lies at `url`. Our key is not sent there.

        Raises `ProviderUnavailable`.
        """
        kept = bytearray()
        failure = ""
        try:
            with self._client(url) as client, client.stream("GET", url, headers=dict(headers)) as response:
                for piece in _plain(response, self._deadline()):
                    kept += piece
                    if len(kept) > 2 * max_bytes:
                        del kept[:-max_bytes]
                return response.status_code, response.headers, bytes(kept[-max_bytes:])
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, _Unreadable, OSError, ValueError) as error:
            failure = _describe(error)
        raise ProviderUnavailable(f"a log can't be fetched from where Vast.ai put it: {failure}")

    def exchange(
        self, route: Route, item: str = "", params: Mapping[str, str] | None = None, body: Any = None
    ) -> tuple[Answer | None, str]:
        """One request, unpaced: the answer, or None and why there is none. Raises `KeyRefused` where the key may not be
        sent at all. What httpx raises ends here: it holds the request, and that the key."""
        self._check_key()
        url = self._base_url + route.path.replace("{id}", quote(item, safe=""))
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}
        try:
            with (
                self._client(url) as client,
                client.stream(route.method, url, params=params, json=body, headers=headers) as response,
            ):
                raw = bytearray()
                for piece in _plain(response, self._deadline()):
                    raw += piece
                    if len(raw) > MAX_ANSWER_BYTES:
                        return None, f"an answer of over {MAX_ANSWER_BYTES >> 20} MiB"
                data = _json(bytes(raw))
                words = _words(bytes(raw[:1000])) if data is None else ""
                return Answer(response.status_code, data, response.headers, words), ""
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, _Unreadable, OSError, ValueError) as error:
            return None, self.scrub(_describe(error))

    def _client(self, url: str) -> httpx.Client:
        verify = _tls() if self._transport is None and url.startswith("https:") else False
        return httpx.Client(
            transport=self._transport,
            verify=verify,
            timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S),
            follow_redirects=False,
            trust_env=url.startswith("https:"),  # the environment may name a proxy; nothing in clear goes through one
            headers={"Accept-Encoding": "identity", "User-Agent": "provefleet"},
        )

    def _deadline(self) -> Callable[[], None]:
        """Raises once the whole answer takes too long: httpx only limits each silence."""
        until = self._now_ms() + WHOLE_ANSWER_S * 1000

        def check() -> None:
            if self._now_ms() > until:
                raise _Unreadable(f"the answer took over {WHOLE_ANSWER_S:.0f} s")

        return check

    def _check_key(self) -> None:
        if not self._key:
            raise KeyRefused("there is no account key of Vast.ai; set PROVEFLEET_VAST_API_KEY, see docs/vast.md")
        if not _KEY_CHARACTERS.issuperset(self._key):
            raise KeyRefused("PROVEFLEET_VAST_API_KEY holds characters that no key has: copy it again, without spaces")
        if not _may_carry_key(self._base_url):
            raise KeyRefused(
                "PROVEFLEET_VAST_URL must begin with https://, or be on loopback: the account key is not sent in clear"
            )

    def _wait(self, route: Route) -> None:
        try:
            self._pacer.wait(route.name, route.interval_s * MARGIN, PATIENCE_S)
        except Busy as busy:
            if route is SEARCH and busy.wait_s > MAX_PAUSE_S:
                until_s = self._now_ms() / 1000 + busy.wait_s
                raise SearchQuotaUsedUp(_quota(until_s), int(until_s * 1000)) from None
            raise ProviderUnavailable(
                f"Vast.ai allows the next {route.name} in {busy.wait_s:.0f} s only; it waits until then"
            ) from None

    def _too_frequent(self, route: Route, answer: Answer, attempt: int) -> None:
        """Makes everybody pause. Raises `SearchQuotaUsedUp` when no pause of minutes will do."""
        now_s = self._now_ms() / 1000
        if "search_quota_exceeded" in answer.message:
            until_s = number(answer.headers, "X-RateLimit-Reset") or 0.0
            if not now_s < until_s <= now_s + 86_400:
                until_s = (now_s // 86_400 + 1) * 86_400  # the quota is of a day in UTC
            self._pacer.penalty(route.name, until_s - now_s)
            raise SearchQuotaUsedUp(_quota(until_s), int(until_s * 1000))
        self._pause(route, answer, route.penalty_s, attempt)

    def _pause(self, route: Route, answer: Answer | None, least_s: float, attempt: int) -> None:
        """Holds everybody up: as long as the answer asks, else from `least_s` on, longer with each attempt."""
        asked = None
        if answer is not None:
            asked = _retry_after_s(answer.headers.get("Retry-After", ""), self._now_ms() / 1000)
            asked = number(answer.fields, "retry_after") if asked is None else asked
        growing = least_s * 2**attempt * self._rng.uniform(1.0, 1.25)
        self._pacer.penalty(route.name, min(growing if asked is None else max(asked, route.interval_s), MAX_PAUSE_S))

    def _named(self, route: Route, answer: Answer) -> None:
        """Raises for what is about our key or this address, and not about the thing asked for."""
        said = answer.message.lower()
        if 300 <= answer.status < 400:
            where = urlsplit(str(answer.headers.get("Location", ""))).netloc or "elsewhere"
            raise ProviderUnavailable(
                self.scrub(
                    f"Vast.ai points to {where} for {route.name} (HTTP {answer.status}), and our key is not sent on; "
                    "if that is its new address, set PROVEFLEET_VAST_URL"
                )
            )
        login = "auth_error" in said or (answer.status == 404 and ("user key" in said or "log in again" in said))
        denied = answer.status in (401, 403) and not (answer.status == 403 and "your own" in said)
        if login or denied:
            raise KeyRefused(
                f"Vast.ai does not accept our key for {route.name} ({self.says(answer)}): see PROVEFLEET_VAST_API_KEY "
                "and its permissions; `provefleet vast check` helps"
            )


class _Unreadable(Exception):
    """A body that we won't read on."""


@cache
def _tls() -> ssl.SSLContext:
    """Made once a process: it takes 20 ms."""
    return httpx.create_ssl_context()


def _may_carry_key(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.scheme == "https":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _plain(response: httpx.Response, check: Callable[[], None]) -> Iterator[bytes]:
    """The body in pieces. We ask for no compression, and open none: a small answer could fill the memory."""
    if response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
        raise _Unreadable("the body is compressed, which we did not ask for")
    for piece in response.iter_bytes():
        check()
        yield piece


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _words(raw: bytes) -> str:
    """The beginning of a body that is no JSON, for a person."""
    words = printable(raw.decode(errors="replace"))
    return "a web page" if words.startswith("<") else words[:MAX_TEXT] or "an empty body"


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _retry_after_s(value: str, now_s: float) -> float | None:
    """RFC 9110 10.2.3: seconds, or a date."""
    seconds = number({"": value}, "", high=1e9)
    if seconds is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        return None


def _quota(until_s: float) -> str:
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(until_s))
    return f"Vast.ai's daily quota of searches is used up until {at}; the offers of the last scan stay"
