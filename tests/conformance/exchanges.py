"""What went over the wire between Vast's client and the fake market, and the files that keep it."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx

RECORDED = Path(__file__).parent / "recorded"
SECRET = "<key>"
URL = "http://127.0.0.1:1"
# Time that passes in the market before each request: more than any route's pause, so that what the real client does is
# judged by its answers, not by its haste.
PAUSE_S = 13


@dataclass
class Exchange:
    """One request and its answer. Bodies are JSON values, or text where they are none."""

    method: str
    path: str
    query: dict[str, Any]
    sent: Any
    status: int
    answered: Any
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Call:
    """What the real client was asked to do, what it exchanged, and what it made of that."""

    name: str
    asked: list[Any]
    exchanges: list[Exchange]
    understood: Any

    @classmethod
    def of_json(cls, fields: dict[str, Any]) -> Call:
        return cls(**{**fields, "exchanges": [Exchange(**e) for e in fields["exchanges"]]})


class Recorder:
    """A WSGI application around the fake's: before each request time passes there, and both sides are kept."""

    def __init__(self, app: Callable[..., Iterable[bytes]], advance: Callable[[float], None], secrets: list[str]):
        self._app, self._advance, self._secrets = app, advance, secrets
        self._lock = threading.Lock()
        self.exchanges: list[Exchange] = []
        self.pause_s: float = PAUSE_S

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        with self._lock:
            self._advance(self.pause_s)
            sent = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(sent)
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            head: list[Any] = []
            try:
                body = self._app(environ, lambda status, headers, exc_info=None: head.extend((status, headers)))
            except httpx.TransportError as error:
                self.exchanges.append(
                    Exchange(environ["REQUEST_METHOD"], environ["PATH_INFO"], {}, _value(sent), 0, None)
                )
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                raise ConnectionResetError(str(error)) from error
            answered = b"".join(body)
            status, headers = head
            query = {k: _value(v.encode()) for k, v in parse_qsl(environ.get("QUERY_STRING", ""))}
            known = {k: v for k, v in headers if k.lower() in ("content-type", "date", "last-modified")}
            code = int(status.split()[0])
            self.exchanges.append(Exchange(method, path, query, _value(sent), code, _value(answered), known))
            start_response(status, headers)
            return [answered]

    def taken(self) -> list[Exchange]:
        """What was exchanged since the last time this was asked."""
        with self._lock:
            taken, self.exchanges = self.exchanges, []
        return taken

    def redacted(self, value: Any, url: str) -> Any:
        """The same JSON without the keys, as if the market were at `URL`."""
        text = json.dumps(value).replace(url, URL)
        for secret in self._secrets:
            text = text.replace(secret, SECRET)
        return json.loads(text)


def _value(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


def keep(file: Path, calls: list[Call]) -> None:
    """One call a line."""
    file.write_text("".join(json.dumps(asdict(call), separators=(",", ":")) + "\n" for call in calls))


def kept(file: Path) -> Iterator[Call]:
    for line in file.read_text().splitlines():
        yield Call.of_json(json.loads(line))


def shape(value: Any) -> Any:
    """The keys and types of a JSON value; a list stands for its first entry."""
    if isinstance(value, dict):
        return {k: shape(v) for k, v in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return "number" if isinstance(value, (int, float)) else "text"
