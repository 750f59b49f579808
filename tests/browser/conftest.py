"""A stage for each module of tests in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.shots import Stage, chromium, stage


@pytest.fixture(scope="module")
def staged() -> Iterator[Stage]:
    if chromium() is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with stage() as made:
        yield made
