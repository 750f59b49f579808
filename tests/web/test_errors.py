from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable

import pytest
from flask import Flask

from jobs.context import Context
from tests.web.seed import Fleet
from tests.web.site import Browser
from web.access import viewer


def test_a_bug_shows_an_id_and_logs_the_trace(
    app: Flask, signed_in: Callable[[str], Browser], caplog: pytest.LogCaptureFixture
) -> None:
    browser = signed_in("viewer")

    @viewer
    def broken() -> str:
        raise KeyError("the secret inside")

    app.view_functions["runs.list_page"] = broken
    with caplog.at_level(logging.ERROR):
        answer = browser.get("/runs")
    assert answer.status_code == 500
    assert "Something broke on our side" in answer.text
    assert "secret inside" not in answer.text
    assert "Traceback" not in answer.text
    number = answer.text.partition("Id of this error: <code>")[2].partition("</code>")[0]
    assert number in caplog.text
    assert "secret inside" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/runs/0123", 404),
        ("GET", "/instances/none", 404),
        ("DELETE", "/runs", 405),
        ("GET", "/archive/none/bench", 404),
        ("PUT", "/inputs/exe", 400),
    ],
)
def test_errors_say_what_next(signed_in: Callable[[str], Browser], method: str, path: str, status: int) -> None:
    answer = signed_in("admin").client.open(path, method=method)
    assert answer.status_code == status
    assert answer.text.count("<p>") >= 2
    assert "Overview" in answer.text


def test_the_database_away(app: Flask, context: Context, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("viewer")
    path = context.settings.state_dir / "provefleet.db"
    path.rename(path.with_suffix(".gone"))
    for page in ("/", "/runs", "/archive"):
        answer = browser.get(page)
        assert answer.status_code == 503
        assert "The database does not answer" in answer.text
    assert browser.get("/healthz").status_code == 200
    assert browser.get("/sign-in").status_code == 200
    path.unlink()
    path.with_suffix(".gone").rename(path)
    assert browser.get("/").status_code == 200


def test_the_database_locked_for_writing(context: Context, app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(app.test_client())
    with sqlite3.connect(context.settings.state_dir / "provefleet.db") as other:
        other.execute("BEGIN EXCLUSIVE")
        browser.token = "x"
        assert browser.get("/sign-in").status_code == 200  # reading goes on
        other.rollback()


def test_redis_away(signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("operator")
    queues = browser.get("/queues")
    assert queues.status_code == 200
    assert "Nothing is lost" in queues.text
    assert browser.post("/offers/scan").location == "/offers"
    assert "No scan now" in browser.get("/offers").text
    browser.post("/queues/requeue", job="deploy_x_1")
    assert browser.get("/").status_code == 200


def test_s3_away(fleet: Fleet, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("operator")
    done = fleet.instances["destroyed"]
    lines = browser.get(f"/archive/{done}/bench")
    assert lines.status_code == 200
    assert "The lines can&#39;t be read now" in lines.text
    for path in (
        f"/archive/{done}/bench/raw",
        f"/instances/{done}/evidence.zip",
        f"/instances/{done}/artifacts/proofs.json",
    ):
        assert browser.get(path).status_code == 503
    headers = {"X-CSRFToken": browser.token}
    answer = browser.client.put("/inputs/wtns?name=w.wtns", data=b"wtns", headers=headers)
    assert answer.status_code == 503
    assert "nothing was stored" in answer.json["error"]
    assert browser.get("/archive").status_code == 200
