"""The pages that tell what became of a run: every paid second, and its sums."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable

import pytest

from logs.store import S3Config
from tests.web.seed import HOSTILE, Fleet
from tests.web.site import Browser, archive_site

SignedIn = Callable[[str], Browser]


def milliseconds(page: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r">([\d,]+) ms<", page)]


def test_the_paid_seconds_add_up_on_the_page(signed_in: SignedIn, fleet: Fleet) -> None:
    browser = signed_in("viewer")
    page = browser.get(f"/runs/{fleet.runs['passed']}/waterfall").text
    *parts, whole = milliseconds(page)
    assert sum(parts) == whole > 0
    for word in ("Boot", "Parameters", "Synthesis", "Compute", "Verify", "Upload", "Idle", "Traffic"):
        assert word in page
    assert f"/runs/{fleet.runs['passed']}/waterfall" in browser.get(f"/runs/{fleet.runs['passed']}").text


def test_a_run_that_rented_nothing_says_so(signed_in: SignedIn, fleet: Fleet) -> None:
    browser = signed_in("viewer")
    assert "no machine is rented yet" in browser.get(f"/runs/{fleet.runs['queued']}/waterfall").text
    assert browser.get("/runs/0000/waterfall").status_code == 404
    page = browser.get(f"/runs/{fleet.hostile_run}/waterfall").text
    assert not any(text in page for text in HOSTILE if "<" in text)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, s3_config: S3Config) -> tuple[Browser, Fleet]:
    return archive_site(tmp_path_factory.mktemp("story"), s3_config, "viewer")


def test_a_failure_stands_beside_the_nearest_success(archive: tuple[Browser, Fleet]) -> None:
    browser, fleet = archive
    page = browser.get(f"/runs/{fleet.runs['broken']}/diff").text
    assert fleet.runs["passed"][:8] in page
    assert "same payload and circuit, GPU model" in page
    assert "<b>decisive</b>" in page
    assert "The success has the decisive line too" in page
    assert f"/runs/{fleet.runs['broken']}/diff" in browser.get(f"/runs/{fleet.runs['broken']}/diagnosis").text
    links = re.findall(r'href="(/archive/[^"#]*)#L(\d+)">', page)
    assert {address.split("/")[2] for address, _ in links} == {fleet.gaps, fleet.instances["destroyed"]}
    for address, line in (links[0], links[1], links[-1]):
        assert f'id="L{line}"' in browser.get(address.replace("&amp;", "&")).text


def test_any_stretch_of_any_stream_can_be_compared(archive: tuple[Browser, Fleet]) -> None:
    browser, fleet = archive
    page = browser.get(f"/runs/{fleet.runs['broken']}/diff?stream=daemon&line=100").text
    assert "220 lines read alike" in page
    assert "do not part" in page
    assert "around line 100" in page
    page = browser.get(f"/runs/{fleet.runs['broken']}/diff?line=500").text
    assert "Here they part" in page  # at the lines that this run has lost
    assert browser.get(f"/runs/{fleet.runs['broken']}/diff?stream=nonsense&line=99999999").status_code == 200


def test_without_lines_or_without_a_success_the_page_says_so(archive: tuple[Browser, Fleet]) -> None:
    browser, fleet = archive
    assert "No line of this run" in browser.get(f"/runs/{fleet.runs['queued']}/diff").text
    page = browser.get(f"/runs/{fleet.hostile_run}/diff").text
    assert not any(text in page for text in HOSTILE if "<" in text)


def test_lines_that_cannot_be_read_are_no_error(signed_in: SignedIn, fleet: Fleet) -> None:
    assert "can&#39;t be read now" in signed_in("viewer").get(f"/runs/{fleet.runs['broken']}/diff").text


def test_the_capsule_comes_from_the_runs_page(signed_in: SignedIn, fleet: Fleet) -> None:
    browser = signed_in("viewer")
    address = f"/runs/{fleet.runs['passed']}/capsule.zip"
    assert address in browser.get(f"/runs/{fleet.runs['passed']}").text
    answer = browser.get(address)
    with zipfile.ZipFile(io.BytesIO(answer.data)) as capsule:
        assert {"README.md", "capsule.json", "run.sh", "SHA256SUMS"} <= set(capsule.namelist())
    assert browser.get(f"/runs/{fleet.runs['queued']}/capsule.zip").status_code == 404
    assert browser.get(f"/runs/{fleet.hostile_run}/capsule.zip").status_code == 200
