"""The page that searches the logs: hits with their links, bad queries, hostile lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from logs.store import S3Config
from tests.web.seed import HOSTILE, Fleet
from tests.web.site import Browser, archive_site, seeded, settings_of
from web import create_app

Site = tuple[Browser, Fleet]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, s3_config: S3Config) -> Site:
    return archive_site(tmp_path_factory.mktemp("search"), s3_config, "viewer")


def test_hits_lead_to_their_lines(site: Site) -> None:
    browser, fleet = site
    page = browser.get(f"/archive/search?q=cudaErrorNoKernelImage&run={fleet.runs['passed']}").text
    links = re.findall(r'href="(/archive/[^"#]*)#L(\d+)">(\d+)</a>', page)
    assert len(links) > 10
    address, line, shown = links[0]
    assert line == shown
    target = browser.get(address.replace("&amp;", "&")).text
    row = re.search(rf'id="L{line}">.*?</div>', target, re.DOTALL)
    assert row is not None
    assert "cudaErrorNoKernelImage" in row[0]
    assert "everything was searched" in page


def test_a_bad_expression_and_nothing_found_say_so(site: Site) -> None:
    browser, _ = site
    page = browser.get("/archive/search?q=(&regex=on")
    assert page.status_code == 200
    assert "not an expression" in page.text
    assert "No line holds that" in browser.get("/archive/search?q=nowheretobefound").text
    assert "Type what a log said" in browser.get("/archive/search").text


def test_what_machines_wrote_stays_text(site: Site) -> None:
    browser, fleet = site
    for text in HOSTILE:
        page = browser.get("/archive/search", query_string={"q": text[:200], "run": fleet.hostile_run}).text
        assert not any(h in page.split("</form>", 1)[1] for h in HOSTILE if "<" in h)
    assert fleet.hostile_instance in browser.get("/archive/search?q=onerror").text


def test_the_archive_away_is_said_and_does_no_harm(tmp_path: Path) -> None:
    context, fleet = seeded(settings_of(tmp_path))
    browser = Browser(create_app(context).test_client())
    browser.sign_in("viewer")
    page = browser.get(f"/archive/search?q=window&run={fleet.runs['passed']}")
    assert page.status_code == 200
    assert "archive can&#39;t be read now" in page.text or "everything was searched" in page.text
