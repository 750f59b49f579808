from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask

from tests.web.routes import routes
from tests.web.seed import Fleet
from tests.web.site import Browser
from web.security import UNSAFE, secret_key


def test_headers_of_every_page(app: Flask, fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("admin")
    for _, method, path in routes(app, fleet):
        if method != "GET":
            continue
        answer = browser.get(path)
        headers = answer.headers
        answer.close()
        policy = headers["Content-Security-Policy"]
        assert "unsafe" not in policy, path
        for part in (
            "default-src 'self'",
            "object-src 'none'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "form-action 'self'",
        ):
            assert part in policy or "sandbox" in policy, path
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "same-origin"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert "camera=()" in headers["Permissions-Policy"]
        if not path.startswith("/static"):
            assert headers["Cache-Control"] == "no-store", path


def test_the_nonce_is_new_each_time_and_on_every_script(app: Flask) -> None:
    pages = [app.test_client().get("/sign-in") for _ in range(2)]
    nonces = [page.headers["Content-Security-Policy"].split("'nonce-")[1].split("'")[0] for page in pages]
    assert nonces[0] != nonces[1]
    assert pages[0].text.count("<script") == pages[0].text.count(f'<script nonce="{nonces[0]}"')


def test_no_inline_style_or_handler(app: Flask, fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("admin")
    for path in ("/", "/runs", "/runs/new", f"/runs/{fleet.runs['active']}", "/offers", "/archive", "/users"):
        text = browser.get(path).text
        assert ' style="' not in text
        assert ' onclick="' not in text
        assert "<style" not in text


def test_every_unsafe_route_wants_the_token(app: Flask, fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("admin")
    unsafe = [(method, path) for _, method, path in routes(app, fleet) if method in UNSAFE]
    assert len(unsafe) >= 14
    for method, path in unsafe:
        for data in ({}, {"csrf_token": "wrong"}):
            more = {"content_type": "multipart/form-data"} if path.startswith("/inputs") and method == "POST" else {}
            answer = browser.client.open(path, method=method, data=data or {"x": "y"}, **more)
            assert answer.status_code == 400, (method, path, answer.status_code)
            assert "lost its proof" in answer.text, (method, path)


@pytest.mark.parametrize("sent_by", ["cross-site", "same-site"])
def test_another_site_can_not_post(signed_in: Callable[[str], Browser], sent_by: str) -> None:
    browser = signed_in("operator")
    assert browser.post("/offers/scan", headers={"Sec-Fetch-Site": sent_by}).status_code == 403
    assert browser.post("/offers/scan", headers={"Origin": "https://evil.example"}).status_code == 403
    assert browser.post("/offers/scan", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 302


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("a.localhost", 200),
        ("rebound.evil.example", 400),
        ("x" * 300, 400),
    ],
)
def test_only_our_names_are_served(app: Flask, host: str, status: int) -> None:
    assert app.test_client().get("/healthz", headers={"Host": host}).status_code == status


def test_ordinary_forms_are_small(signed_in: Callable[[str], Browser]) -> None:
    answer = signed_in("operator").post("/runs/new", circuit_size="1" * 300_000)
    assert answer.status_code == 413
    assert "too large" in answer.text


def test_cookies(app: Flask) -> None:
    browser = Browser(app.test_client())
    cookie = browser.sign_in("admin").headers.getlist("Set-Cookie")[0]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Secure" not in cookie
    secure = app.test_client().get("/sign-in", base_url="https://localhost")
    cookie = secure.headers["Set-Cookie"]
    assert cookie.startswith("__Host-")
    assert "Secure" in cookie
    assert "Path=/" in cookie
    assert "max-age=31536000" in secure.headers["Strict-Transport-Security"]


def test_the_secret_key_is_made_once_and_private(tmp_path: Path) -> None:
    first = secret_key(tmp_path)
    assert secret_key(tmp_path) == first
    assert len(first) == 64
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600


def test_static_files_are_cached_by_their_hash(app: Flask) -> None:
    client = app.test_client()
    assert "max-age=31536000" in client.get("/static/app.css?v=1").headers["Cache-Control"]
    assert client.get("/static/live.js").headers["Cache-Control"] == "no-cache"


def test_health_says_nothing(app: Flask) -> None:
    assert app.test_client().get("/healthz").text == "ok\n"
