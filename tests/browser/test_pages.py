"""Every page in four widths and both themes, with the keyboard, without scripts.

`PROVEFLEET_SHOTS=FOLDER` keeps the pictures.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.shots import THEMES, WIDTHS, Stage, look, pages, watched
from tests.web.seed_vast import BAD, machine_id

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
FIXTURES = Path(__file__).parents[1] / "fixtures"
# Chromium writes a line for a page that answers 404, as it should.
EXPECTED = ("status of 404",)


@pytest.fixture(scope="session")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = os.environ.get("PROVEFLEET_SHOTS")
    kept = Path(folder) if folder else tmp_path_factory.mktemp("shots")
    kept.mkdir(parents=True, exist_ok=True)
    return kept


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_and_can_be_read(staged: Stage, shots: Path, width: int, theme: str) -> None:
    one = watched(staged.browser, width, theme, staged.cookies)
    wrong = []
    for name, path in {**pages(staged.fleet), "sign-in": "/sign-in", "password": "/password"}.items():
        wrong += look(staged, one, name, path, shots / f"{name}.{width}.{theme}.png")
    wrong += [c for c in one.complaints if not any(text in c for text in EXPECTED)]
    one.context.close()
    assert wrong == []


def test_the_keys(staged: Stage) -> None:
    page = watched(staged.browser, 1440, "light", staged.cookies).page()
    page.goto(f"{staged.address}/")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/runs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.locator("tbody tr").first.get_attribute("class") == "selected"
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type(staged.fleet.runs["broken"][:10])
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{staged.fleet.runs['broken']}")


def test_the_theme_is_kept_and_comes_before_the_first_paint(staged: Stage) -> None:
    page = watched(staged.browser, 1440, "light", staged.cookies).page()
    page.goto(f"{staged.address}/")
    page.click("header details.menu summary")
    page.click("#theme")
    page.click("#theme")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.goto(f"{staged.address}/runs", wait_until="commit")
    page.wait_for_selector("body", state="attached")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)"


def test_a_live_page_follows_and_says_so(staged: Stage) -> None:
    one = watched(staged.browser, 1440, "light", staged.cookies)
    page = one.page()
    page.goto(f"{staged.address}/runs/{staged.fleet.runs['active']}")
    # Not `wait_for_function`: it evaluates strings in the page, which the page's own CSP refuses.
    expect(page.locator("[data-stream] span").first).to_have_text("Live")
    page.wait_for_selector("#tail .tail-row")
    before = page.locator("#part-head .money").first.inner_text()
    expect(page.locator("#part-head .money").first).not_to_have_text(before, timeout=60_000)
    assert one.complaints == []


def test_an_upload_with_a_bar_and_one_that_is_refused(staged: Stage, tmp_path: Path) -> None:
    one = watched(staged.browser, 1440, "light", staged.cookies)
    page = one.page()
    page.goto(f"{staged.address}/inputs")
    (tmp_path / "empty.zkey").write_bytes(b"")
    page.set_input_files("#file-zkey", tmp_path / "empty.zkey")
    page.click("form:has(#file-zkey) button")
    page.wait_for_selector("text=it is empty")
    (tmp_path / "false.zkey").write_bytes(b"zkey but not really")
    page.set_input_files("#file-zkey", tmp_path / "false.zkey")
    page.click("form:has(#file-zkey) button")
    page.wait_for_selector(".upload-row .bad")
    page.set_input_files("#file-zkey", FIXTURES / "bn254_chain1k" / "circuit.zkey")
    page.click("form:has(#file-zkey) button")
    page.wait_for_selector("table >> text=circuit.zkey")


def test_chosen_offers_are_added_up_and_deployed(staged: Stage) -> None:
    one = watched(staged.browser, 1440, "light", staged.cookies)
    page = one.page()
    page.goto(f"{staged.address}/offers?min_proofs_per_hour=300&skipped=hide")
    boxes = page.locator("input[name=offer]")
    boxes.nth(0).check()
    boxes.nth(1).check()
    page.wait_for_selector("#sum >> text=Deploy 2")
    assert "reserve $" in page.locator("#sum").inner_text()
    page.click("text=Deploy the chosen")
    page.wait_for_url("**/runs/new?**")
    assert page.locator("input[name=offer]:checked").count() == 2
    assert page.input_value("#min_proofs_per_hour") == "300"
    expect(page.locator("button[value=sum]")).to_be_hidden()  # the script runs
    page.select_option("#provider", "local")
    page.wait_for_selector("label:has-text('27101')")
    assert page.input_value("#min_proofs_per_hour") == "300"
    assert page.locator("input[name=offer]:checked").count() == 0
    assert one.complaints == []


def test_forms_that_open_fit_a_phone(staged: Stage) -> None:
    page = watched(staged.browser, 360, "dark", staged.cookies).page()
    for path, opens in ((f"/machines/vast/{machine_id(BAD['broken'])}", "Withdraw"), ("/costs", "Remove")):
        page.goto(staged.address + path)
        page.locator(f"main summary:has-text('{opens}')").first.click()
        box = page.locator("main details[open] .form-sheet").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert box["y"] + box["height"] <= 740


def test_the_sum_is_always_there(staged: Stage) -> None:
    page = watched(staged.browser, 360, "light", staged.cookies).page()
    page.goto(f"{staged.address}/runs/new")
    page.fill("#max_dollars", "2.50")
    page.wait_for_selector("#sum >> text=$2.50")
    assert page.locator(".sum").bounding_box()["y"] < 740  # type: ignore[index]
    page.fill("#circuit_size", "none")
    page.wait_for_selector("#sum >> text=needs a look")


def test_reading_and_starting_without_scripts(staged: Stage) -> None:
    context = staged.browser.new_context(java_script_enabled=False, storage_state=staged.cookies)  # type: ignore[arg-type]
    page = context.new_page()
    for path in pages(staged.fleet).values():
        answer = page.goto(staged.address + path)
        assert answer is not None
        assert answer.status in (200, 404)
        assert page.locator("main").inner_text().strip()
    page.goto(f"{staged.address}/runs/new")
    page.fill("#max_dollars", "1")
    page.click("button[value=sum]")
    assert "$1.00" in page.locator("#sum").inner_text()
    page.goto(f"{staged.address}/inputs")
    page.set_input_files("#file-wtns", FIXTURES / "bls12381_chain1k" / "witness.wtns")
    page.click("form:has(#file-wtns) button")
    assert "witness.wtns is stored" in page.locator("main").inner_text()
    page.set_viewport_size({"width": 360, "height": 740})
    page.click("nav details summary")
    page.click("nav .sheet >> text=Machines")
    assert page.url.endswith("/machines")


def test_a_page_weighs_little(staged: Stage) -> None:
    """Everything that a first visit loads, uncompressed (over gzip it is less)."""
    context = staged.browser.new_context(storage_state=staged.cookies)  # type: ignore[arg-type]
    for name, path in {"overview": "/", "run": f"/runs/{staged.fleet.runs['passed']}", "runs": "/runs"}.items():
        page = context.new_page()
        weights: list[int] = []
        page.on("response", lambda r, weights=weights: weights.append(len(r.body())) if r.status == 200 else None)
        page.goto(staged.address + path, wait_until="networkidle")
        print(f"{name}: {sum(weights)} bytes in {len(weights)} files")
        assert sum(weights) < 150_000
        page.close()
