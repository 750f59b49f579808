"""Fixtures for every test: the real services, started once a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logs.store import S3Config
from tests.fakes.s3 import running_s3


@pytest.fixture(scope="session")
def s3_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Config]:
    """A running SeaweedFS with an empty bucket. Tests share it: use ids of your own in keys."""
    with running_s3(tmp_path_factory.mktemp("s3") / "server") as config:
        yield config
