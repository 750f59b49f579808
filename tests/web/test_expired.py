"""What the pages say of runs whose logs expired, and how an operator keeps those of others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.context import Context
from jobs.domain import archive
from jobs.domain.archive_models import Keep
from jobs.domain.db import writing
from logs.store import S3Config
from tests.web.seed import Fleet
from tests.web.site import Browser, seeded, settings_of
from web import create_app

Site = tuple[Browser, Fleet, Context]
DAY_MS = 1_780_000_000_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, s3_config: S3Config) -> Site:
    config = replace(s3_config, bucket="expired")  # ids are the same for every seed: others keep their objects
    context, fleet = seeded(settings_of(tmp_path_factory.mktemp("expired"), config))
    context.store.ensure_bucket()
    browser = Browser(create_app(context).test_client())
    browser.sign_in("operator")
    with writing(context.sessions) as session:
        archive.locked(session, fleet.instances["destroyed"]).expired_ms = DAY_MS
    return browser, fleet, context


def test_an_expired_stream_says_so(site: Site) -> None:
    browser, fleet, _ = site
    done = fleet.instances["destroyed"]
    page = browser.get(f"/archive/{done}/bench").text
    assert "The lines of this run expired on 2026-05-28." in page
    assert page.count('class="gap"') == 1
    assert "evidence.zip" not in page
    assert "expired on 2026-05-28" in browser.get(f"/archive?run={fleet.runs['passed']}").text
    bundle = browser.get(f"/instances/{done}/evidence.zip")
    assert bundle.status_code == 404
    assert "expired on 2026-05-28" in bundle.text
    artifact = browser.get(f"/instances/{done}/artifacts/rounds/1/proof_0.json")
    assert artifact.status_code == 404
    assert "expired on 2026-05-28" in artifact.text
    assert browser.get(f"/archive/{done}/bench/raw").data == b""


def test_an_operator_keeps_a_run(site: Site) -> None:
    browser, fleet, context = site
    run = fleet.runs["passed"]
    path = f"/runs/{run}"
    assert "Keep for ever" in browser.get(path).text
    browser.post(f"{path}/keep", reason=" ")
    with context.sessions() as session:
        assert session.get(Keep, run) is None
    browser.post(f"{path}/keep", reason="the fastest so far")
    page = browser.get(path).text
    assert "the fastest so far" in page
    assert "Let it expire" in page
    assert "Kept for ever:" in browser.get(f"/audit?run={run}").text
    browser.post(f"{path}/keep", end="yes")
    assert "Keep for ever" in browser.get(path).text
