"""The list of runs when there are very many of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from jobs.context import Context
from tests.web.bulk import many_runs
from tests.web.site import Browser

COUNT = 10_000


def test_the_list_of_very_many_runs(context: Context, signed_in: Callable[[str], Browser]) -> None:
    """A page is quick wherever it lies, and no run is on two pages."""
    many_runs(context, COUNT)
    browser = signed_in("viewer")
    seen: list[str] = []
    spent_s = []
    for page in (1, 2, 3, 200):
        began = time.process_time()
        response = browser.get(f"/runs?page={page}")
        spent_s.append(time.process_time() - began)
        assert response.status_code == 200
        seen += dict.fromkeys(re.findall(r'href="/runs/([0-9a-f]{32})"', response.get_data(as_text=True)))
    assert len(seen) == 200
    assert len(seen) == len(set(seen))
    assert min(spent_s) < 0.5
