"""What Vast.ai keeps of a machine's output: the container's log, and the host daemon's about starting it.

Asked for, the host uploads it some seconds later to an address that anyone may read, where the previous upload of the
same machine may still lie. Both logs may have one address, so the second is asked for once the first is here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from jobs.market.providers.base import LogsNotReady, NoSuchInstance, ProviderUnavailable
from jobs.market.providers.vast_fields import text
from jobs.market.providers.vast_http import REQUEST_LOGS, VastHttp

CONTAINER_LOG, DAEMON_LOG = "provider.log", "provider-daemon.log"
TAIL_LINES = 20_000
# Hosts have been seen to take a minute; without a container there is nothing to wait for, but that is not said.
CONTAINER_PATIENCE_S = 75.0
DAEMON_PATIENCE_S = 12.0
POLL_S = 1.5
RESOLUTION_S = 2.0  # of HTTP dates, on both ends
_GONE = ("no_such_instance", "not_found", "invalid_id", "no such instance")


class _Upload(NamedTuple):
    """An object of the store, and what tells it from the next one at the same address."""

    etag: str
    modified: str
    data: bytes


def request(http: VastHttp, provider_id: str, now_ms: Callable[[], int], *, daemon: bool = False) -> dict[str, Any]:
    """Ask the host to upload a log; the ticket says where, and when that was asked.

    Raises `NoSuchInstance`, `ProviderUnavailable`.
    """
    body = {"tail": str(TAIL_LINES), **({"daemon_logs": "true"} if daemon else {})}
    answer = http.call(REQUEST_LOGS, item=provider_id, body=body)
    if any(word in answer.message.lower() for word in _GONE):
        raise NoSuchInstance(f"Vast.ai has no logs of machine {provider_id} (any more): {http.says(answer)}")
    url = text(answer.fields, "result_url", 2000)
    if not answer.good or not url:
        raise http.unusable(REQUEST_LOGS, answer)
    return {"provider_id": provider_id, "url": url, "asked_ms": now_ms()}


def fetch(
    http: VastHttp,
    ticket: Mapping[str, Any],
    max_bytes: int,
    base_url: str,
    now_ms: Callable[[], int],
    sleep: Callable[[float], None],
) -> dict[str, bytes]:
    """The logs that are there. Raises `LogsNotReady`, `NoSuchInstance`, `ProviderUnavailable`."""
    asked_ms = int(ticket["asked_ms"])
    container = _read(http, ticket, max_bytes, base_url, now_ms())
    if container is None and now_ms() - asked_ms < CONTAINER_PATIENCE_S * 1000:
        raise LogsNotReady("the host has not uploaded the container's log yet")
    daemon = _daemon(http, ticket, container, max_bytes, base_url, now_ms, sleep)
    logs = {CONTAINER_LOG: container, DAEMON_LOG: daemon}
    found = {name: log.data for name, log in logs.items() if log is not None}
    if not found:
        raise LogsNotReady("the host has uploaded no log; it may be offline")
    return found


def _daemon(
    http: VastHttp,
    of_container: Mapping[str, Any],
    container: _Upload | None,
    max_bytes: int,
    base_url: str,
    now_ms: Callable[[], int],
    sleep: Callable[[float], None],
) -> _Upload | None:
    """The daemon's log, or None: it is worth some seconds, not the container's log that is already here."""
    begun_ms = now_ms()
    try:
        ticket = request(http, str(of_container["provider_id"]), now_ms, daemon=True)
        while now_ms() - begun_ms < DAEMON_PATIENCE_S * 1000:
            sleep(POLL_S)
            log = _read(http, ticket, max_bytes, base_url, now_ms())
            if log is not None and (log != container or ticket["url"] != of_container["url"]):
                return log
    except (NoSuchInstance, ProviderUnavailable):
        return None
    return None


def _read(http: VastHttp, ticket: Mapping[str, Any], max_bytes: int, base_url: str, now_ms: int) -> _Upload | None:
    """What was uploaded since the ticket was made; None until then."""
    url = str(ticket["url"])
    if why := _suspicious(url, base_url):
        raise ProviderUnavailable(f"Vast.ai put a log at an address that we don't open: {why}")
    status, headers, data = http.download(url, {"Range": f"bytes=-{max_bytes}"}, max_bytes)
    if status not in (200, 206, 416) or not _is_fresh(headers, int(ticket["asked_ms"]), now_ms):
        return None
    # 416: an empty object has no last bytes.
    return _Upload(headers.get("ETag", ""), headers["Last-Modified"], b"" if status == 416 else data)


def _is_fresh(headers: Mapping[str, str], asked_ms: int, now_ms: int) -> bool:
    """True if it was uploaded after we asked: the store's clock says how old it is, ours how long ago we asked, so that
    it does not matter whether they agree. What does not say its age is taken for an old one."""
    try:
        uploaded_s = parsedate_to_datetime(headers["Last-Modified"]).timestamp()
        there_s = parsedate_to_datetime(headers["Date"]).timestamp() if "Date" in headers else now_ms / 1000
    except (KeyError, ValueError, TypeError, OverflowError):
        return False
    return there_s - uploaded_s <= (now_ms - asked_ms) / 1000 + RESOLUTION_S


def _suspicious(url: str, base_url: str) -> str:
    """Why nothing is fetched from there: only https to a name, or loopback where the marketplace is there itself."""
    try:
        parts, market = urlsplit(url), urlsplit(base_url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "it is no web address"
    if market.scheme == "http" and parts.scheme == "http" and host in (market.hostname, "localhost", "127.0.0.1"):
        return ""
    if parts.scheme != "https" or parts.username is not None or port == 0 or "." not in host:
        return "it is not https, or names no host"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return ""
    return "it names a number, not a host"
