from __future__ import annotations

from collections.abc import Callable

from flask import Flask
from sqlalchemy import select

from jobs.context import Context
from jobs.domain.models import UserSession
from tests.web.seed import PASSWORD, Fleet
from tests.web.site import Browser, Clock

HOUR = 3_600_000


def test_wrong_password_and_unknown_name_look_the_same(app: Flask) -> None:
    texts = []
    for name in ("admin", "nobody", "gone"):
        browser = Browser(app.test_client())
        answer = browser.sign_in(name, PASSWORD if name == "gone" else "wrong password")
        assert answer.status_code == 401
        texts.append(answer.text.partition('role="alert"')[2].partition("</div>")[0])
    assert len(set(texts)) == 1


def test_five_tries_a_minute(app: Flask) -> None:
    browser = Browser(app.test_client())
    assert [browser.sign_in("admin", "wrong").status_code for _ in range(7)] == [401] * 5 + [429] * 2
    assert browser.sign_in("operator").status_code == 302  # another account is not held up


def test_only_the_hash_of_the_token_is_kept(app: Flask, context: Context) -> None:
    browser = Browser(app.test_client())
    cookie = browser.sign_in("admin").headers.getlist("Set-Cookie")[0].split(";")[0].split("=", 1)[1]
    with context.sessions() as session:
        stored = session.scalars(select(UserSession.token_sha256)).all()
    assert len(cookie) >= 43
    assert all(cookie not in token for token in stored)


def test_signing_in_again_ends_the_old_session(app: Flask, context: Context) -> None:
    browser = Browser(app.test_client())
    browser.sign_in("admin")
    browser.sign_in("admin")
    with context.sessions() as session:
        assert len(session.scalars(select(UserSession)).all()) == 1


def test_idle_and_absolute_limits(clock: Clock, signed_in: Callable[[str], Browser]) -> None:
    idle, busy = signed_in("viewer"), signed_in("operator")
    for _ in range(11):
        clock.now += HOUR
        assert busy.get("/runs").status_code == 200
    assert idle.get("/runs").status_code == 302
    clock.now += HOUR + 60_000
    assert busy.get("/runs").location.startswith("/sign-in")


def test_sign_out(signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("viewer")
    assert browser.post("/sign-out").location == "/sign-in"
    assert browser.get("/").status_code == 302


def test_disabling_a_user_signs_him_out_at_once(fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    viewer, admin = signed_in("viewer"), signed_in("admin")
    admin.post(f"/users/{fleet.users['viewer']}/disable")
    assert viewer.get("/").location.startswith("/sign-in")


def test_the_one_time_password_is_changed_first(app: Flask) -> None:
    browser, other = Browser(app.test_client()), Browser(app.test_client())
    assert browser.sign_in("newcomer").location == "/password"
    other.sign_in("newcomer")
    assert browser.get("/runs").location == "/password"
    new = "a long enough sentence"
    assert browser.post("/password", old="wrong", new=new, again=new).status_code == 400
    assert browser.post("/password", old=PASSWORD, new=new, again="different").status_code == 400
    assert browser.post("/password", old=PASSWORD, new="short", again="short").status_code == 400
    assert browser.post("/password", old=PASSWORD, new=new, again=new).location == "/"
    assert browser.get("/runs").status_code == 200
    assert other.get("/runs").location.startswith("/sign-in")


def test_the_last_admin_stays(fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    admin = signed_in("admin")
    answer = admin.post(f"/users/{fleet.users['admin']}/disable")
    assert answer.location == "/users"
    assert "Nothing changed" in admin.get("/users").text


def test_a_new_user_and_his_password_shown_once(app: Flask, signed_in: Callable[[str], Browser]) -> None:
    admin = signed_in("admin")
    answer = admin.post("/users", name="night.shift", role="operator")
    assert answer.status_code == 201
    password = answer.text.partition('<code class="secret">')[2].partition("</code>")[0]
    assert password not in admin.get("/users").text
    assert Browser(app.test_client()).sign_in("night.shift", password).location == "/password"
    assert admin.post("/users", name="bad name", role="viewer").status_code == 400
