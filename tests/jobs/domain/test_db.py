"""The migrations make what the models say, on both databases; and a database that fails says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from pydantic import SecretStr
from sqlalchemy import select

from jobs.context import Context
from jobs.domain.db import DatabaseUnavailable, database_url, held_open, make_engine, migrate, ping, writing
from jobs.domain.models import Leader
from jobs.domain.tables import Base
from jobs.settings import Settings


def test_from_nothing_to_exactly_the_models(context: Context) -> None:
    with context.engine.connect() as connection:
        options = {"compare_type": True, "render_as_batch": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata) == []


def test_migrating_again_changes_nothing(context: Context) -> None:
    migrate(context.settings)
    migrate(context.settings)


def test_an_error_takes_the_whole_transaction_back(context: Context) -> None:
    def half_way() -> None:
        with writing(context.sessions) as session:
            session.add(Leader(role="r", holder="h", expires_ms=1))
            session.flush()
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        half_way()
    with context.sessions() as session:
        assert session.scalar(select(Leader)) is None


def test_a_process_that_serves_spares_each_writer_the_copying_of_the_wal(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, database_url=SecretStr(""))
    migrate(settings)
    context, wal = Context(settings), tmp_path / "provefleet.db-wal"

    def write(role: str) -> None:
        with writing(context.sessions) as session:
            session.add(Leader(role=role, holder="h", expires_ms=1))

    write("alone")
    assert not wal.exists()
    held = held_open(context.engine)
    assert held is not None
    write("beside it")
    assert wal.stat().st_size
    held.close()
    with context.sessions() as session:
        assert set(session.scalars(select(Leader.role))) == {"alone", "beside it"}
    assert not wal.exists()


def test_only_sqlite_needs_a_connection_held_and_a_database_that_is_away_says_so(tmp_path: Path) -> None:
    assert held_open(make_engine("postgresql+pg8000://u@127.0.0.1:1/db")) is None
    with pytest.raises(DatabaseUnavailable, match="does not answer"):
        held_open(make_engine(f"sqlite:///{tmp_path}/no/such/folder/x.db"))


@pytest.mark.parametrize("prefix", ["postgres://", "postgresql://"])
def test_both_ways_to_write_postgresql_mean_the_same_driver(tmp_path: Path, prefix: str) -> None:
    settings = Settings(state_dir=tmp_path, database_url=SecretStr(prefix + "u:p@host/db"))
    assert database_url(settings) == "postgresql+pg8000://u:p@host/db"


def test_an_unusable_url_and_a_database_that_is_away_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match="PROVEFLEET_DATABASE_URL"):
        make_engine("oracle+nothing://x")
    with pytest.raises(DatabaseUnavailable, match="does not answer"):
        ping(make_engine(f"sqlite:///{tmp_path}/no/such/folder/x.db"))
    with pytest.raises(DatabaseUnavailable, match="refused the migration"):
        migrate(Settings(state_dir=tmp_path, database_url=SecretStr("postgresql://u@127.0.0.1:1/db")))
