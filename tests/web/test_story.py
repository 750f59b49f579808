"""The pages that tell what became of a run: every paid second, and its sums."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.web.seed import HOSTILE, Fleet
from tests.web.site import Browser

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
