"""What one request reaches: the process's context, one database session, the signed-in user."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from flask import Flask, current_app, g
from sqlalchemy.orm import Session

from jobs.context import Context

if TYPE_CHECKING:
    from jobs.domain.models import User

KEY = "provefleet"


def attach(app: Flask, context: Context) -> None:
    app.extensions[KEY] = context

    @app.teardown_appcontext
    def close(_error: BaseException | None) -> None:
        session = g.pop("db", None)
        if session is not None:
            session.close()


def context() -> Context:
    return cast(Context, current_app.extensions[KEY])


def now_ms() -> int:
    return context().now_ms()


def db() -> Session:
    """The request's session, for reading. Writes go through the domain, each in a transaction of its own."""
    if "db" not in g:
        g.db = context().sessions()
    return cast(Session, g.db)


def user() -> User | None:
    """The signed-in user, as `access` found it; None on public pages and while the database is down."""
    return cast("User | None", g.get("user"))


def actor() -> str:
    """The name that events are written under. Only behind a route that needs a user."""
    signed_in = user()
    if signed_in is None:
        raise RuntimeError("a page without a user can't act; its route must declare a role")
    return signed_in.name
