"""Fixtures of the site's tests: a frozen clock, a seeded database, a client for each role."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask
from jinja2 import BytecodeCache, FileSystemBytecodeCache
from pydantic import SecretStr

from jobs.context import Context
from tests.web.seed import Fleet
from tests.web.site import Browser, Clock, seeded, settings_of
from web import create_app
from web.security import limiter


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(tmp_path: Path, clock: Clock) -> tuple[Context, Fleet]:
    market = {"vast_api_key": SecretStr("0" * 64), "public_url": "https://agents.provefleet.dev"}
    return seeded(settings_of(tmp_path, **market), clock)


@pytest.fixture
def context(site: tuple[Context, Fleet]) -> Context:
    return site[0]


@pytest.fixture
def fleet(site: tuple[Context, Fleet]) -> Fleet:
    return site[1]


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> BytecodeCache:
    """Templates compiled once a worker: by itself each app compiles them anew."""
    return FileSystemBytecodeCache(str(tmp_path_factory.mktemp("templates")))


@pytest.fixture
def app(context: Context, templates: BytecodeCache) -> Flask:
    made = create_app(context)
    made.jinja_env.bytecode_cache = templates
    limiter.reset()
    return made


@pytest.fixture
def signed_in(app: Flask) -> Callable[[str], Browser]:
    """A browser signed in as a user with that role."""

    def make(role: str) -> Browser:
        browser = Browser(app.test_client())
        assert browser.sign_in(role).status_code == 302
        return browser

    return make
