"""What machines and users write is shown as text, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from tests.web.routes import routes
from tests.web.seed import HOSTILE, Fleet
from tests.web.site import Browser


class Scripts(HTMLParser):
    """Collects what could act: scripts without a nonce, handlers, dangerous links, images."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if (tag == "script" and not given.get("nonce")) or tag in ("img", "iframe", "object", "embed", "base"):
            self.found.append(tag)
        self.found += [f"{tag} {name}" for name in given if name.startswith("on") or name == "style"]
        links = [given.get(name) or "" for name in ("href", "src", "action", "formaction", "xlink:href")]
        self.found += [f"{tag} {link}" for link in links if link.strip().lower().startswith("javascript:")]


@pytest.mark.parametrize("role", ["viewer", "admin"])
def test_nothing_hostile_acts_on_any_page(app, fleet: Fleet, signed_in: Callable[[str], Browser], role: str) -> None:
    browser = signed_in(role)
    hostile = [
        f"/runs/{fleet.hostile_run}",
        f"/instances/{fleet.hostile_instance}",
        f"/runs/{fleet.hostile_run}/proofs",
    ]
    paths = [path for _, method, path in routes(app, fleet) if method == "GET"] + hostile
    for path in paths:
        answer = browser.get(path)
        if answer.mimetype != "text/html":
            answer.close()
            continue
        parser = Scripts()
        parser.feed(answer.text)
        assert parser.found == [], path
        assert "\x1b" not in answer.text, path
        assert "\u202e" not in answer.text, path
        assert "\u200b" not in answer.text, path


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_searches_come_back_as_text(signed_in: Callable[[str], Browser], text: str) -> None:
    browser = signed_in("admin")
    for path in ("/search", "/runs", "/machines", "/archive", "/audit", "/inputs", "/offers"):
        names = (
            "q",
            "by",
            "machine",
            "run",
            "actor",
            "kind",
            "name",
            "gpu",
            "stream",
            "sort",
            "page",
            "from",
            "before",
            "price",
        )
        answer = browser.client.get(path, query_string=dict.fromkeys(names, text), follow_redirects=True)
        assert answer.status_code == 200, path
        parser = Scripts()
        parser.feed(answer.text)
        assert parser.found == [], path


def test_bidi_characters_are_named(fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    text = signed_in("viewer").get(f"/instances/{fleet.hostile_instance}").text
    assert "user⟨U+202E⟩gnp.exe" in text
    assert "␛[31mred" in text


def test_settings_show_no_secret(signed_in: Callable[[str], Browser]) -> None:
    text = signed_in("operator").get("/settings").text
    assert "nothing" not in text.partition("PROVEFLEET_S3_SECRET_ACCESS_KEY")[2][:200]
    assert "never shown" in text
