"""The page of decisions: what was decided, whether it still would be, and other rules tried on it."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.web.seed import HOSTILE, Fleet
from tests.web.site import Browser

SignedIn = Callable[[str], Browser]


def test_decisions_are_listed_and_other_rules_can_be_tried(signed_in: SignedIn, fleet: Fleet) -> None:
    browser = signed_in("viewer")
    page = browser.get("/decisions").text
    assert "no kernel image" in page
    assert "/decisions" in browser.get("/costs").text
    tried = browser.get("/decisions?rule=verdict&min_rate=100000").text
    counted = re.search(r"<b>(\d+) of (\d+)</b> decisions would be others", tried)
    assert counted
    assert int(counted[1]) >= 1
    assert fleet.runs["passed"][:8] in tried
    assert not any(text in page for text in HOSTILE if "<" in text)


def test_nonsense_in_the_form_is_named_and_an_empty_ledger_says_what_comes(signed_in: SignedIn) -> None:
    browser = signed_in("viewer")
    page = browser.get("/decisions?min_rate=nan&silent_s=-3&rule=orphan").text
    assert page.count("a number above 0") == 2
    assert "No decision of this kind" in page
