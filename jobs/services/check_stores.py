"""Checks of the three stores: Redis, the database, the archive."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from jobs.services.finding import Finding, fail, ok, warn
from jobs.settings import Settings

TIMEOUT_S = 3
START = "Start the stack: provefleet up"


def redis(settings: Settings) -> Iterator[Finding]:
    """Reachable, and never throwing keys away when it is full."""
    from redis import Redis, RedisError

    url = settings.redis_url.get_secret_value()
    try:
        with Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S) as client:
            server = client.info("server")
            policy = client.info("memory").get("maxmemory_policy", "unknown")
    except (RedisError, ValueError, OSError) as error:
        yield fail("redis", f"{url} does not answer: {error}", f"{START}; or correct PROVEFLEET_REDIS_URL")
        return
    name = (
        "Valkey " + server["valkey_version"] if "valkey_version" in server else f"Redis {server.get('redis_version')}"
    )
    if policy == "noeviction":
        yield ok("redis", f"{name} at {url}, maxmemory-policy {policy}")
    else:
        yield warn(
            "redis",
            f"{name}, maxmemory-policy {policy}: jobs may vanish when memory is short (reconcile then finds them late)",
            "redis-cli config set maxmemory-policy noeviction",
        )


def database(settings: Settings) -> Iterator[Finding]:
    """Reachable, at the newest schema, and SQLite in WAL mode."""
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from sqlalchemy.exc import SQLAlchemyError

    from jobs.domain import db

    if missing := missing_file(settings):
        yield fail("database", missing, START)
        return
    url = db.database_url(settings)
    sqlite = url.startswith("sqlite")
    try:
        engine = db.make_engine(url)
        head = ScriptDirectory.from_config(db.alembic_config(engine)).get_current_head()
        with engine.connect() as connection:
            current = MigrationContext.configure(connection).get_current_revision()
            wal = connection.exec_driver_sql("PRAGMA journal_mode").scalar() if sqlite else "wal"
        shown = engine.url.render_as_string(hide_password=True)
    except (SQLAlchemyError, db.DatabaseUnavailable, OSError) as error:
        why = str(getattr(error, "orig", None) or error).splitlines()[0]
        yield fail("database", f"it does not answer: {why}", f"{START}; or correct PROVEFLEET_DATABASE_URL")
        return
    if current != head:
        yield fail(
            "database", f"{shown} is at revision {current}, this program needs {head}", f"{START}, which upgrades it"
        )
    elif wal != "wal":
        yield fail("database", f"{shown} is in journal mode {wal}, not wal", "Keep it on a local disk, not on NFS")
    else:
        yield ok("database", f"{shown} at revision {current}" + (", WAL" if sqlite else ""))


def missing_file(settings: Settings) -> str:
    """Says so when the database is a file that is not there; connecting would make an empty one."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    from jobs.domain.db import database_url

    try:
        url = make_url(database_url(settings))
    except ArgumentError:
        return ""  # connecting will explain it
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        return f"{url.database} is not there"
    return ""


def archive(settings: Settings) -> Iterator[Finding]:
    """Everything that the archive needs of S3, tried on a throw-away object."""
    if not settings.s3_endpoint:
        yield fail("archive", "no S3 store is set, and none was made here", START)
        return
    from jobs.context import Context
    from logs.errors import StoreError
    from logs.probe import probe

    try:
        checks = probe(Context(settings).store, secrets.token_hex(8), time.time())
    except StoreError as error:
        yield fail("archive", str(error), f"{START}; or correct the PROVEFLEET_S3_* settings")
        return
    for check in checks:
        if check.ok:
            yield ok(f"archive {check.name}", check.detail)
        else:
            yield fail(f"archive {check.name}", check.detail, f"{START}; or correct the PROVEFLEET_S3_* settings")
