"""The database: SQLite in WAL mode by default, PostgreSQL (pg8000) by `PROVEFLEET_DATABASE_URL`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Connection, CursorResult, Engine, Update, create_engine, event, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

from jobs.settings import Settings

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"


class DatabaseUnavailable(RuntimeError):
    """The database can't be reached or refuses us: what, why, what to do."""


def database_url(settings: Settings) -> str:
    """The SQLAlchemy URL; `postgres://` and `postgresql://` are both taken to mean the pg8000 driver."""
    url = settings.database_url.get_secret_value()
    if not url:
        return f"sqlite:///{settings.state_dir / 'provefleet.db'}"
    for prefix in ("postgres://", "postgresql://"):
        if url.startswith(prefix):
            return "postgresql+pg8000://" + url.removeprefix(prefix)
    return url


def _sqlite_pragmas(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # we begin transactions ourselves, so that writers take the lock at once
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA busy_timeout=15000")
    cursor.close()


def _sqlite_begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writing") else "BEGIN")


def on_sqlite(engine: Engine) -> None:
    """What every engine on SQLite needs: WAL, foreign keys, patience, and transactions that we begin ourselves."""
    event.listen(engine, "connect", _sqlite_pragmas)
    event.listen(engine, "begin", _sqlite_begin)


def make_engine(url: str) -> Engine:
    """An engine whose every connection is safe after a fork (SQLite: one per use) and never waits for ever."""
    try:
        if url.startswith("sqlite"):
            engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": 15, "check_same_thread": False})
            on_sqlite(engine)
            return engine
        return create_engine(
            url, pool_pre_ping=True, pool_size=4, max_overflow=60, pool_recycle=600, connect_args={"timeout": 10}
        )
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise DatabaseUnavailable(
            f"PROVEFLEET_DATABASE_URL is not usable ({error}); expected postgresql://user:password@host/db or sqlite:///path"
        ) from error


def held_open(engine: Engine) -> Connection | None:
    """On SQLite, an idle connection for a process that serves to hold, and never to use or to fork with; else None.

    Where nobody else has the database open, a session that closes copies the whole WAL into the database and deletes
    it: that doubled the time of each write. Raises `DatabaseUnavailable`.
    """
    if engine.dialect.name != "sqlite":
        return None
    try:
        connection = engine.connect()
        connection.execute(text("SELECT count(*) FROM sqlite_master"))
        connection.rollback()
    except DBAPIError as error:
        raise DatabaseUnavailable(f"the database does not answer ({error.orig})") from error
    return connection


def make_sessions(engine: Engine) -> sessionmaker[Session]:
    return sessionmaker(engine, expire_on_commit=False)


def alembic_config(engine: Engine) -> Config:
    from alembic.config import Config  # 9 MB that only a migration needs

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["engine"] = engine
    return config


def migrate(settings: Settings) -> None:
    """Bring the schema to the newest revision. Raises `DatabaseUnavailable`."""
    from alembic import command

    engine = make_engine(database_url(settings))
    try:
        command.upgrade(alembic_config(engine), "head")
    except DBAPIError as error:
        raise DatabaseUnavailable(
            f"the database refused the migration ({error.orig}); "
            "check PROVEFLEET_DATABASE_URL and the free disk, then start again"
        ) from error
    finally:
        engine.dispose()


@contextmanager
def writing(sessions: sessionmaker[Session]) -> Iterator[Session]:
    """One transaction that means to write: commits at the end, rolls back on an error.

    On SQLite it takes the write lock at the start, so that what it reads is what it changes and no
    read lock has to be upgraded half-way (which fails at once, whatever the busy timeout).
    """
    with sessions() as session:
        session.connection(execution_options={"writing": True})
        yield session
        session.commit()


def rows_changed(session: Session, statement: Update) -> int:
    """Execute an UPDATE and say how many rows it changed: 0 means that its guard did not hold."""
    result = cast("CursorResult[Any]", session.execute(statement.execution_options(synchronize_session=False)))
    return result.rowcount


def ping(engine: Engine) -> None:
    """Raises `DatabaseUnavailable` unless the database answers."""
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
    except DBAPIError as error:
        raise DatabaseUnavailable(f"the database does not answer ({error.orig})") from error
