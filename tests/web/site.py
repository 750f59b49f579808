"""The site as tests use it: an app over a seeded database, a browser-like client, and the real server."""

from __future__ import annotations

import atexit
import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flask.testing import FlaskClient
from pydantic import SecretStr
from werkzeug.test import TestResponse

from jobs.context import Context
from jobs.domain.db import migrate
from jobs.services.programs import SITE_THREADS
from jobs.settings import Settings
from logs.store import S3Config
from tests.sql import compiled_once
from tests.web.seed import PASSWORD, Fleet, seed
from web import create_app

NOW = 1_796_040_000_000  # 2026-11-30 12:00 UTC
NOWHERE_S3 = S3Config("http://127.0.0.1:9", "provefleet", "us-east-1", "nobody", "nothing")
NOWHERE_REDIS = "redis://127.0.0.1:9/0"
TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')


class Clock:
    """A clock that a test moves."""

    def __init__(self, now_ms: int = NOW):
        self.now = now_ms

    def __call__(self) -> int:
        return self.now


def settings_of(folder: Path, s3: S3Config = NOWHERE_S3, redis_url: str = NOWHERE_REDIS, **more: Any) -> Settings:
    """Settings over a folder of the test; by default nothing answers but the database."""
    return Settings(
        state_dir=folder,
        database_url=SecretStr(f"sqlite:///{folder / 'provefleet.db'}"),
        redis_url=SecretStr(redis_url),
        s3_endpoint=s3.endpoint,
        s3_bucket=s3.bucket,
        s3_access_key_id=s3.access_key_id,
        s3_secret_access_key=SecretStr(s3.secret_access_key),
        **more,
    )


_templates: dict[int, tuple[Path, Fleet]] = {}


def seeded(settings: Settings, clock: Clock | None = None, *, with_bytes: bool = False) -> tuple[Context, Fleet]:
    """A migrated database with the fleet in it. Under a clock it is made once, and copied for every further test."""
    context = compiled_once(Context(settings, clock) if clock else Context(settings))
    if clock is None or with_bytes:
        migrate(settings)
        return context, seed(context, context.store if with_bytes else None)
    if clock.now not in _templates:
        folder = Path(tempfile.mkdtemp(prefix="pf-seed-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        first = compiled_once(Context(settings_of(folder), Clock(clock.now)))
        migrate(first.settings)
        _templates[clock.now] = (folder / "provefleet.db", seed(first))
        first.engine.dispose()
    file, fleet = _templates[clock.now]
    with sqlite3.connect(file) as source, sqlite3.connect(settings.state_dir / "provefleet.db") as copy:
        source.backup(copy)
    return context, deepcopy(fleet)


def archive_site(folder: Path, s3: S3Config, role: str) -> tuple[Browser, Fleet]:
    """The site over a seeded database whose streams have their bytes, and a browser that is signed in."""
    context, fleet = seeded(settings_of(folder, s3), with_bytes=True)
    browser = Browser(create_app(context).test_client())
    browser.sign_in(role)
    return browser, fleet


def token_in(page: str) -> str:
    found = TOKEN.search(page)
    assert found, page[:2000]
    return found.group(1)


class Browser:
    """A client that keeps its CSRF token as a page would."""

    def __init__(self, client: FlaskClient):
        self.client = client
        self.token = ""

    def sign_in(self, name: str, password: str = PASSWORD) -> TestResponse:
        self.token = token_in(self.client.get("/sign-in").text)
        answer = self.post("/sign-in", name=name, password=password)
        if answer.status_code == 302:
            page = self.client.get(answer.location)
            self.token = token_in(page.text)
        return answer

    def get(self, path: str, **more: Any) -> TestResponse:
        return self.client.get(path, **more)

    def post(self, path: str, headers: dict[str, str] | None = None, **fields: Any) -> TestResponse:
        return self.client.post(path, data={"csrf_token": self.token, **fields}, headers=headers)


def connect(address: str) -> tuple[http.client.HTTPConnection, str]:
    """A connection to a served site, and the cookie of a signed-in operator."""
    host = urlsplit(address).netloc
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.request("GET", "/sign-in")
    answer = connection.getresponse()
    form = (answer.getheader("Set-Cookie") or "").split(";")[0]
    body = f"csrf_token={token_in(answer.read().decode())}&name=operator&password={PASSWORD.replace(' ', '+')}"
    headers = {"Cookie": form, "Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/sign-in", body, headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 302
    return connection, (answer.getheader("Set-Cookie") or "").split(";")[0]


@contextlib.contextmanager
def served(settings: Settings, app: str = "site", threads: int = SITE_THREADS) -> Iterator[str]:
    """The site (or the machine app) under gunicorn as `provefleet up` runs it: its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = {name: getattr(settings, name) for name in settings.model_fields_set}
    plain = {k: v.get_secret_value() if isinstance(v, SecretStr) else str(v) for k, v in given.items()}
    env = {f"PROVEFLEET_{name.upper()}": value for name, value in plain.items()}
    flags = [
        "--worker-class",
        "gthread",
        "--workers",
        "1",
        "--threads",
        str(threads),
        "--graceful-timeout",
        "1",
        "--no-control-socket",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *flags, "--bind", f"127.0.0.1:{port}", f"web.wsgi:{app}"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **env},
    )
    try:
        address = f"http://127.0.0.1:{port}"
        health = "healthz"
        deadline = time.monotonic() + 20
        while True:
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
                urllib.request.urlopen(f"{address}/{health}", timeout=1),
            ):
                break
            assert process.poll() is None, "gunicorn ended"
            assert time.monotonic() < deadline, "the site did not start"
            time.sleep(0.1)
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
