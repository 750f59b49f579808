"""The archive's pages over a real S3."""

from __future__ import annotations

import pytest

from logs.store import S3Config
from tests.web.seed import Fleet
from tests.web.site import Browser, archive_site

Site = tuple[Browser, Fleet]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, s3_config: S3Config) -> Site:
    return archive_site(tmp_path_factory.mktemp("archive"), s3_config, "viewer")


def test_lines_have_numbers_and_anchors(archive: Site) -> None:
    browser, fleet = archive
    page = browser.get(f"/archive/{fleet.instances['destroyed']}/bench?from=501").text
    assert 'id="L501"' in page
    assert 'id="L1000"' in page
    assert 'id="L500"' not in page
    assert "Lines 501–1,000 of 1,400" in page


def test_go_to_a_line(archive: Site) -> None:
    browser, fleet = archive
    path = f"/archive/{fleet.instances['destroyed']}/bench"
    assert browser.get(f"{path}?line=777").location == f"{path}?from=501#L777"
    assert browser.get(f"{path}?from=999999").status_code == 200
    assert browser.get(f"{path}?from=-3&line=x").status_code == 200
    # Any `from` shows the page that it lies on: permalinks mean the same to everyone.
    assert 'id="L501"' in browser.get(f"{path}?from=777").text


def test_a_gap_is_marked(archive: Site) -> None:
    browser, fleet = archive
    page = browser.get(f"/archive/{fleet.gaps}/bench?from=501").text
    assert 'class="gap"' in page
    assert "missing" in page


def test_hostile_lines_are_text(archive: Site) -> None:
    browser, fleet = archive
    page = browser.get(f"/archive/{fleet.hostile_instance}/bench").text
    assert "&lt;script&gt;alert(1)" in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_downloads(archive: Site) -> None:
    browser, fleet = archive
    done = fleet.instances["destroyed"]
    raw = browser.get(f"/archive/{done}/bench/raw")
    assert raw.data.count(b"\n") == 1400
    assert raw.headers["Content-Disposition"].startswith('attachment; filename="')
    assert "sandbox" in raw.headers["Content-Security-Policy"]
    assert browser.get(f"/instances/{done}/evidence.zip").data.startswith(b"PK")
    artifact = browser.get(f"/instances/{done}/artifacts/rounds/1/proof_0.json")
    assert artifact.data == b'{"name": "rounds/1/proof_0.json"}'
    assert artifact.mimetype == "application/octet-stream"  # never a page of ours, whatever it is called
    assert browser.get(f"/instances/{done}/artifacts/../../secret").status_code == 404
    assert browser.get(f"/instances/{fleet.instances['ready']}/evidence.zip").status_code == 404


def test_filters(archive: Site) -> None:
    browser, fleet = archive
    everything = browser.get("/archive").text
    assert everything.count("evidence.zip") > 2
    assert "holds nothing like that" in browser.get("/archive?stream=kernel").text
    assert "holds nothing like that" in browser.get("/archive?from=2031-01-01").text
    assert fleet.gaps[:8] in browser.get("/archive?evidence=gaps").text
    assert fleet.gaps[:8] not in browser.get("/archive?evidence=complete").text
    assert fleet.gaps[:8] in browser.get(f"/archive?run={fleet.runs['broken'][:6]}").text
    assert browser.get("/archive?from=nonsense&to=2026-13-99").status_code == 200
