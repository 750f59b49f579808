"""Who may sign in, and as what. Admins only."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, abort, flash, redirect, render_template, request, url_for
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from jobs.domain import users
from jobs.domain.models import User, UserSession
from jobs.domain.work import record, transaction
from web import scope
from web.access import admin

blueprint = Blueprint("users", __name__)


def _show(name: str = "", role: str = "viewer", problem: str = "", password: str = "") -> str:
    session = scope.db()
    seen = {
        user_id: (count, last)
        for user_id, count, last in session.execute(
            select(UserSession.user_id, func.count(), func.max(UserSession.seen_ms)).group_by(UserSession.user_id)
        )
    }
    rows = session.scalars(select(User).order_by(User.disabled, User.name)).all()
    return render_template(
        "users.html", users=rows, roles=users.ROLES, seen=seen, name=name, role=role, problem=problem, password=password
    )


@blueprint.get("/users")
@admin
def page() -> str:
    return _show()


@blueprint.post("/users")
@admin
def add() -> tuple[str, int]:
    """A new user. The one-time password is on the answer itself, and nowhere else."""
    name, role = request.form.get("name", "").strip(), request.form.get("role", "viewer")
    context = scope.context()
    try:
        with transaction(context) as session:
            password = users.add_user(session, name, role, context.now_ms())
            record(session, context.now_ms(), scope.actor(), "user.added", f"{name} as {role}")
    except users.InvalidUser as error:
        return _show(name, role, str(error)), 400
    return _show(name, role, password=password), 201


def _change(user_id: str, kind: str, text: str, act: Callable[[Session, User], None]) -> Response:
    context = scope.context()
    try:
        with transaction(context) as session:
            user = session.get(User, user_id)
            if user is None:
                abort(404)
            act(session, user)
            record(session, context.now_ms(), scope.actor(), kind, f"{user.name} {text}")
            flash(f"{user.name} {text}.")
    except users.InvalidUser as error:
        flash(f"Nothing changed: {error}.")
    return redirect(url_for("users.page"))


@blueprint.post("/users/<user_id>/role")
@admin
def set_role(user_id: str) -> Response:
    role = request.form.get("role", "")
    return _change(user_id, "user.role", f"is {role} now", lambda session, user: users.set_role(session, user, role))


@blueprint.post("/users/<user_id>/disable")
@admin
def disable(user_id: str) -> Response:
    """Ends every session of the user at once."""
    return _change(
        user_id, "user.disabled", "is disabled and signed out", lambda session, user: users.disable(session, user)
    )


@blueprint.post("/users/<user_id>/enable")
@admin
def enable(user_id: str) -> Response:
    return _change(
        user_id, "user.enabled", "may sign in again", lambda session, user: users.disable(session, user, False)
    )
