"""Who may call what: every route declares a role; what declares none is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from flask import Flask, abort, g, redirect, request, url_for
from werkzeug.wrappers import Response

from web import scope, sessions

ROLES = ("viewer", "operator", "admin")
PUBLIC = "public"
_ATTRIBUTE = "provefleet_role"
# All that a user with a one-time password may open.
CHANGING_PASSWORD = ("sign_in.password", "sign_in.change_password", "sign_in.sign_out")

View = TypeVar("View", bound=Callable[..., Any])


def _declares(role: str) -> Callable[[View], View]:
    def mark(view: View) -> View:
        setattr(view, _ATTRIBUTE, role)
        return view

    return mark


public = _declares(PUBLIC)
viewer = _declares("viewer")
operator = _declares("operator")
admin = _declares("admin")


def declared_role(app: Flask, endpoint: str) -> str | None:
    """The role that an endpoint's view declares; static files are public; None when it declares nothing."""
    if endpoint == "static":
        return PUBLIC
    return getattr(app.view_functions.get(endpoint), _ATTRIBUTE, None)


def allows(role: str, needed: str) -> bool:
    return needed == PUBLIC or (role in ROLES and ROLES.index(role) >= ROLES.index(needed))


def attach(app: Flask) -> None:
    @app.before_request
    def check() -> Response | None:
        if request.endpoint is None:
            return None  # 404 and 405 say so themselves
        needed = declared_role(app, request.endpoint)
        if needed is None:
            abort(403, description="This page declares no role, so nobody may open it.")
        if needed == PUBLIC:
            return None
        g.user = sessions.find_user(sessions.token_digest())
        if g.user is None:
            return _to_sign_in()
        if g.user.must_change_password and request.endpoint not in CHANGING_PASSWORD:
            return redirect(url_for("sign_in.password"))
        if not allows(g.user.role, needed):
            abort(
                403,
                description=f"Your account is a {g.user.role}; this needs the role {needed}. An admin can change that.",
            )
        return None

    app.jinja_env.globals["may"] = may


def may(role: str) -> bool:
    """For templates: whether the signed-in user has `role`."""
    user = scope.user()
    return user is not None and allows(user.role, role)


def _to_sign_in() -> Response:
    if request.method != "GET" or request.accept_mimetypes.best == "text/event-stream":
        abort(401, description="Your session has ended. Sign in and try again.")
    path = request.full_path.rstrip("?") if request.path != "/" else None
    return redirect(url_for("sign_in.form", next=path))


def local_path(target: str | None) -> str:
    """`target` if it is a path of this site, else the overview: a sign-in link must not lead elsewhere."""
    parts = urlsplit(target or "")
    if not target or parts.scheme or parts.netloc or not target.startswith("/") or target[1:2] in ("/", "\\"):
        return url_for("overview.page")
    return target
