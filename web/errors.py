"""What the site says when something is wrong: what happened, why, what next. Never a traceback."""

from __future__ import annotations

import logging
import secrets

from flask import Flask, g, render_template, request
from flask.globals import request_ctx
from flask_wtf.csrf import CSRFError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException, InternalServerError, default_exceptions

from logs.errors import NoSuchObject, StoreError

log = logging.getLogger("provefleet.site")

WORDS: dict[int, tuple[str, str, str]] = {
    400: (
        "We could not read that request",
        "Something in it is missing or wrong.",
        "Go back, check the form and send it again.",
    ),
    401: ("You are not signed in", "Your session has ended.", "Sign in, then try again."),
    403: (
        "You may not do that",
        "Your account does not have the right to open this.",
        "Ask an admin for the role you need.",
    ),
    404: (
        "There is nothing here",
        "The address is wrong, or what it named no longer exists.",
        "Search for it, or start from the overview.",
    ),
    405: (
        "That does not work here",
        "This address does not take that kind of request.",
        "Open the page and use its buttons.",
    ),
    413: (
        "That is too large",
        "The request is bigger than this page accepts.",
        "Send a smaller file, or raise PROVEFLEET_MAX_UPLOAD_BYTES.",
    ),
    429: ("Too many tries", "There were more attempts than allowed in a minute.", "Wait a minute, then try again."),
    500: (
        "Something broke on our side",
        "The site met an error that it did not expect.",
        "Try again; if it stays, give the id below to whoever runs this server.",
    ),
    503: (
        "A service is not answering",
        "A part that this page needs can't be reached.",
        "Nothing is lost. Try again in a moment; `provefleet doctor` says what is wrong.",
    ),
}


def attach(app: Flask) -> None:
    for code in default_exceptions:
        app.register_error_handler(code, show_http)
    app.register_error_handler(CSRFError, show_csrf)
    for kind in (OperationalError, InterfaceError, PoolTimeout):
        app.register_error_handler(kind, show_database_down)
    app.register_error_handler(StoreError, show_store_down)
    # In debug and tests too: a page never shows a trace.
    app.config["PROPAGATE_EXCEPTIONS"] = False


def page(status: int, why: str = "", *, request_id: str = "") -> tuple[str, int]:
    """The error page. Reads neither the database nor Redis: either may be what is down."""
    title, usual, what_next = WORDS.get(status, WORDS[400 if status < 500 else 500])
    if request_ctx.url_adapter is None:
        return f"{title}: {why or usual}\n", status  # a Host header that is none: no address can be made
    text = render_template(
        "error.html", status=status, title=title, why=why or usual, what_next=what_next, request_id=request_id
    )
    return text, status


def show_http(error: HTTPException) -> tuple[str, int]:
    if isinstance(error, InternalServerError):
        return _unexpected(error)
    ours = error.description if error.description != type(error).description else ""
    return page(error.code or 500, ours or "")


def show_csrf(error: CSRFError) -> tuple[str, int]:
    return page(
        400, "The form had lost its proof that it came from this page (the session changed, or cookies are off)."
    )


def show_database_down(error: Exception) -> tuple[str, int]:
    log.error("the database failed at %s: %s", request.path, error)
    g.pop("user", None)
    return page(503, "The database does not answer.")


def show_store_down(error: StoreError) -> tuple[str, int]:
    if isinstance(error, NoSuchObject):
        return page(404, "The archive holds no such object; it may have been removed by retention.")
    log.error("the archive failed at %s: %s", request.path, error)
    return page(503, "The archive (the S3 store) does not answer.")


def _unexpected(error: InternalServerError) -> tuple[str, int]:
    request_id = secrets.token_hex(6)
    log.error(
        "request %s failed: %s %s", request_id, request.method, request.path, exc_info=error.original_exception or error
    )
    return page(500, request_id=request_id)
