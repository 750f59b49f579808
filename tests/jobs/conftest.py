"""What the tests of the jobs share: a migrated database of each kind, a clock, a marketplace, a scene of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine

from jobs.context import Context, use
from jobs.domain.db import database_url, make_engine, migrate
from jobs.domain.tables import Base
from jobs.settings import Settings
from logs.store import S3Config, Store
from tests.fakes.market import FakeMarket
from tests.fakes.memory import fast_parent
from tests.fakes.postgres import PostgresServer
from tests.fakes.valkey import ValkeyServer
from tests.jobs.scene import NO_REDIS, Clock, Scene
from tests.sql import compiled_once


@pytest.fixture(scope="session")
def postgres_engine(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    settings = Settings(
        state_dir=tmp_path_factory.mktemp("pg"), database_url=SecretStr(postgres_server.create("provefleet"))
    )
    migrate(settings)
    engine = make_engine(database_url(settings))
    yield engine
    engine.dispose()


@pytest.fixture
def state_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="provefleet-test-", dir=fast_parent()) as folder:
        yield Path(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, state_dir: Path) -> str:
    """The URL of an empty, migrated database; the test runs on each kind."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), state_dir / "provefleet.db")
        return f"sqlite:///{state_dir / 'provefleet.db'}"
    engine: Engine = request.getfixturevalue("postgres_engine")
    with engine.begin() as connection:
        for table in reversed(Base.metadata.sorted_tables):
            connection.execute(table.delete())
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url("provefleet")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def market(state_dir: Path, clock: Clock) -> FakeMarket:
    return FakeMarket(state_dir / "market.json", clock)


@pytest.fixture
def make_context(
    state_dir: Path, database: str, clock: Clock, market: FakeMarket, s3_config: S3Config
) -> Iterator[Callable[..., Context]]:
    """Contexts on the test's database and marketplace, as separate processes would have; settings by keyword."""
    made: list[Context] = []

    def make(**settings: object) -> Context:
        fields: dict[str, object] = {
            "state_dir": state_dir,
            "database_url": SecretStr(database),
            "redis_url": SecretStr(NO_REDIS),
            "agent_bind": "127.0.0.1:9",
            "s3_endpoint": s3_config.endpoint,
            "s3_bucket": s3_config.bucket,
            "s3_access_key_id": s3_config.access_key_id,
            "s3_secret_access_key": SecretStr(s3_config.secret_access_key),
            "s3_public_endpoint": s3_config.endpoint,
            **settings,
        }
        context = compiled_once(Context(Settings(**fields), now_ms=clock))  # type: ignore[arg-type]
        context.providers["local"] = market
        made.append(context)
        return context

    yield make
    for context in made:
        context.engine.dispose()


@pytest.fixture
def context(make_context: Callable[..., Context], store: Store) -> Iterator[Context]:
    """The context that the jobs find. Its Redis is down: reconcile does the work, unless a test says otherwise."""
    context = make_context()
    context.store = store
    use(context)
    yield context
    use(None)


@pytest.fixture
def scene(context: Context, clock: Clock, market: FakeMarket) -> Scene:
    return Scene(context, clock, market)


@pytest.fixture
def redis_context(make_context: Callable[..., Context], store: Store, valkey_server: ValkeyServer) -> Iterator[Context]:
    """As `context`, on a real, empty Valkey."""
    context = make_context(redis_url=SecretStr(valkey_server.url))
    context.store = store
    context.redis.flushall()
    use(context)
    yield context
    use(None)
    context.redis.close()
