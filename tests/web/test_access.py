from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable

import pytest
from flask import Flask

from jobs.context import Context
from tests.web.routes import routes
from tests.web.seed import Fleet
from tests.web.site import Browser
from web.access import PUBLIC, ROLES, allows, declared_role, local_path


def dump(context: Context) -> list[str]:
    with sqlite3.connect(context.settings.state_dir / "provefleet.db") as connection:
        return list(connection.iterdump())


def test_every_route_declares_a_role(app: Flask) -> None:
    undeclared = [
        r.endpoint for r in app.url_map.iter_rules() if declared_role(app, r.endpoint) not in (PUBLIC, *ROLES)
    ]
    assert undeclared == []


def test_public_is_only_what_must_be(app: Flask) -> None:
    public = {r.endpoint for r in app.url_map.iter_rules() if declared_role(app, r.endpoint) == PUBLIC}
    assert public == {"static", "health.healthz", "sign_in.form", "sign_in.sign_in"}


def test_a_route_without_a_role_is_refused(app: Flask, signed_in: Callable[[str], Browser]) -> None:
    app.add_url_rule("/forgotten", "forgotten", lambda: "secret")
    answer = signed_in("admin").get("/forgotten")
    assert answer.status_code == 403
    assert "secret" not in answer.text


@pytest.mark.parametrize("role", ["nobody", *ROLES])
def test_role_by_route(app: Flask, fleet: Fleet, signed_in: Callable[[str], Browser], role: str) -> None:
    browser = Browser(app.test_client()) if role == "nobody" else signed_in(role)
    for endpoint, method, path in routes(app, fleet):
        needed = declared_role(app, endpoint)
        if needed == PUBLIC or endpoint == "sign_in.sign_out":
            continue
        answer = browser.client.open(
            path, method=method, data={"csrf_token": browser.token} if method != "GET" else None
        )
        if role == "nobody":
            # Without a session there is no CSRF token either, and it is asked for first.
            assert answer.status_code == 302 if method == "GET" else answer.status_code in (400, 401), (method, path)
            assert method != "GET" or answer.location.startswith("/sign-in"), path
        elif not allows(role, str(needed)):
            assert answer.status_code == 403, (method, path)
        else:
            assert answer.status_code not in (401, 403), (method, path, answer.status_code)
        answer.close()


def test_no_get_changes_anything(
    app: Flask, context: Context, fleet: Fleet, signed_in: Callable[[str], Browser]
) -> None:
    browser = signed_in("admin")
    before = dump(context)
    todo = [path for _, method, path in routes(app, fleet) if method == "GET"]
    seen = set()
    while todo and len(seen) < 400:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = browser.get(path)
        assert answer.status_code < 500 or answer.status_code == 503, path
        if answer.mimetype == "text/html":
            todo += [link.replace("&amp;", "&") for link in re.findall(r'href="(/[^"#]*)', answer.text)]
        answer.close()
    assert len(seen) > 100
    assert dump(context) == before


def test_a_role_taken_away_counts_at_the_next_request(
    context: Context, fleet: Fleet, signed_in: Callable[[str], Browser]
) -> None:
    operator, admin = signed_in("operator"), signed_in("admin")
    assert operator.get("/runs/new").status_code == 200
    admin.post(f"/users/{fleet.users['operator']}/role", role="viewer")
    assert operator.get("/runs/new").status_code == 403


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/\\evil.example", "evil", "", None, "javascript:alert(1)"]
)
def test_sign_in_leads_nowhere_else(app: Flask, target: str | None) -> None:
    with app.test_request_context("/"):
        assert local_path(target) == "/"
        assert local_path("/runs?state=slow") == "/runs?state=slow"
