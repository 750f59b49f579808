"""The pages of the diagnosis: causes, lines that can be followed, what is refuted, failures that read alike."""

from __future__ import annotations

import re

import pytest

from logs.store import S3Config
from tests.web.seed import HOSTILE, Fleet
from tests.web.site import Browser, archive_site

Site = tuple[Browser, Fleet]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, s3_config: S3Config) -> Site:
    return archive_site(tmp_path_factory.mktemp("diagnosis"), s3_config, "operator")


def test_every_cited_line_is_where_its_link_leads(site: Site) -> None:
    browser, fleet = site
    page = browser.get(f"/runs/{fleet.runs['broken']}/diagnosis").text
    assert "No kernel image for this GPU" in page
    links = re.findall(r'href="(/archive/[^"#]*)#L(\d+)">', page)
    assert links
    for address, line in links:
        shown = browser.get(address.replace("&amp;", "&"))
        assert shown.status_code == 200
        row = re.search(rf'id="L{line}">.*?</div>', shown.text, re.DOTALL)
        # A line of the stretch that this run has lost is marked as missing; every other one holds the words.
        assert (row is not None and "cudaErrorNoKernelImageForDevice" in row[0]) or "missing" in shown.text


def test_the_tunnel_is_refuted_with_its_reason_here_and_on_the_runs_page(site: Site) -> None:
    browser, fleet = site
    for address in (f"/runs/{fleet.runs['broken']}/diagnosis", f"/runs/{fleet.runs['broken']}"):
        page = browser.get(address).text
        tunnel = page[page.index("The tunnel is down") :][:600]
        assert "refuted" in tunnel
        assert "does not use a tunnel" in tunnel


def test_a_run_without_a_diagnosis_says_when_one_comes(site: Site) -> None:
    browser, fleet = site
    assert "Runs that end badly" in browser.get(f"/runs/{fleet.runs['passed']}/diagnosis").text
    assert "has not ended" in browser.get(f"/runs/{fleet.runs['active']}/diagnosis").text
    assert 'id="h-why"' not in browser.get(f"/runs/{fleet.runs['passed']}").text
    assert browser.get("/runs/0000/diagnosis").status_code == 404


def test_failures_that_read_alike_are_one_row(site: Site) -> None:
    browser, fleet = site
    page = browser.get("/failures").text
    assert page.count("No kernel image for this GPU") == 2
    assert fleet.runs["broken"] in page


def test_what_a_machine_wrote_stays_text(site: Site) -> None:
    browser, fleet = site
    for address in (f"/runs/{fleet.hostile_run}/diagnosis", "/failures", f"/runs/{fleet.hostile_run}"):
        page = browser.get(address).text
        assert not any(text in page for text in HOSTILE if "<" in text)


def test_asking_again_without_redis_says_so(site: Site) -> None:
    browser, fleet = site
    answer = browser.post(f"/runs/{fleet.runs['broken']}/diagnose", {})
    assert answer.status_code == 302
    told = browser.get(f"/runs/{fleet.runs['broken']}/diagnosis").text
    assert "can&#39;t be diagnosed now" in told or "is being diagnosed" in told
