"""The object store behind `result_url`: no login, 403 or 404 until something is there, ranges."""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from tests.fakes.vast.limits import Violation
from tests.fakes.vast.logs import BUCKETS, Stored

if TYPE_CHECKING:
    from tests.fakes.vast.market import Market

XML = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{0}</Code><Message>{1}</Message></Error>'
RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_PREFIXES = tuple(f"/{bucket}/" for bucket in BUCKETS)


def is_object(path: str) -> bool:
    return path.startswith(_PREFIXES)


def serve(market: Market, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """GET or HEAD of one object. A bearer header is refused, as S3 refuses it, and noted: the key leaked."""
    path = environ["PATH_INFO"]
    if environ.get("HTTP_AUTHORIZATION"):
        market.violations.append(Violation("key sent to the log host", path, "", market.now_ms))
        return _error(start_response, "400 Bad Request", "InvalidArgument", "Unsupported Authorization Type")
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        return _error(start_response, "403 Forbidden", "AccessDenied", "Access Denied")
    market.logs.reads += 1
    if market.logs.outages:
        market.logs.outages -= 1
        return _error(start_response, "503 Slow Down", "SlowDown", "Please reduce your request rate.")
    stored = market.logs.objects.get(path[1:])
    if stored is None:
        if market.logs.missing == 403:
            return _error(start_response, "403 Forbidden", "AccessDenied", "Access Denied")
        return _error(start_response, "404 Not Found", "NoSuchKey", "The specified key does not exist.")
    begin, end, status = _range(environ.get("HTTP_RANGE", ""), stored)
    headers = [
        ("Content-Type", "binary/octet-stream"),
        ("Content-Length", str(end - begin)),
        ("Accept-Ranges", "bytes"),
        ("ETag", f'"{stored.etag}"'),
        ("Date", formatdate(market.now_ms / 1000 + market.skew_s, usegmt=True)),
        ("Last-Modified", formatdate(stored.modified_ms / 1000 + market.skew_s, usegmt=True)),
    ]
    if status.startswith("206"):
        headers.append(("Content-Range", f"bytes {begin}-{end - 1}/{stored.size}"))
    start_response(status, headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else stored.chunks(begin, end)


def _range(header: str, stored: Stored) -> tuple[int, int, str]:
    """(begin, end, status) of what was asked for; all of it for a range that makes no sense."""
    asked = RANGE.fullmatch(header.strip())
    if not asked or not stored.size or asked[0] == "bytes=-":
        return 0, stored.size, "200 OK"
    if not asked[1]:
        return max(0, stored.size - int(asked[2])), stored.size, "206 Partial Content"
    begin = int(asked[1])
    end = min(stored.size, int(asked[2]) + 1) if asked[2] else stored.size
    return (begin, end, "206 Partial Content") if begin < end else (0, stored.size, "200 OK")


def _error(start_response: Any, status: str, code: str, message: str) -> Iterable[bytes]:
    raw = XML.format(code, message).encode()
    start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(raw)))])
    return [raw]
