"""Signing in and out, and the change of the one-time password that comes first."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask_limiter.util import get_remote_address
from werkzeug.wrappers import Response

from jobs.domain import users
from jobs.domain.db import writing
from jobs.domain.models import User
from web import scope, sessions
from web.access import local_path, public, viewer
from web.security import limiter

blueprint = Blueprint("sign_in", __name__)


def _address_and_account() -> str:
    return f"{get_remote_address()} {request.form.get('name', '')[:64].casefold()}"


def _was_refused(response: Response) -> bool:
    return response.status_code != 302


@blueprint.get("/sign-in")
@public
def form() -> str:
    return render_template("sign_in.html", name="", wrong=False, next=request.args.get("next", ""))


@blueprint.post("/sign-in")
@public
@limiter.limit("5/minute", key_func=_address_and_account, deduct_when=_was_refused)
@limiter.limit("60/minute", deduct_when=_was_refused)
def sign_in() -> Response | tuple[str, int]:
    name, password = request.form.get("name", "").strip(), request.form.get("password", "")
    found = users.authenticate(scope.db(), name, password)
    target = request.form.get("next", "")
    if found is None:
        return render_template("sign_in.html", name=name, wrong=True, next=target), 401
    response = redirect(url_for("sign_in.password") if found.must_change_password else local_path(target))
    sessions.start(found.id, response)
    return response


@blueprint.get("/password")
@viewer
def password() -> str:
    return render_template("password.html", problems={})


@blueprint.post("/password")
@viewer
def change_password() -> Response | tuple[str, int]:
    """Asks for the old password, so that a browser left open can't be taken over for good."""
    user = scope.user()
    assert user is not None
    old, new = request.form.get("old", ""), request.form.get("new", "")
    problems = {}
    if users.authenticate(scope.db(), user.name, old) is None:
        problems["old"] = "This is not your current password."
    elif new != request.form.get("again", ""):
        problems["again"] = "The two new passwords differ."
    elif new == old:
        problems["new"] = "Choose a password other than the one you have."
    else:
        try:
            with writing(scope.context().sessions) as session:
                row = session.get(User, user.id)
                if row is not None:
                    users.change_password(session, row, new)
        except users.WeakPassword as error:
            problems["new"] = str(error)
    if problems:
        return render_template("password.html", problems=problems), 400
    sessions.end_all_of(user.id)
    response = redirect(url_for("overview.page"))
    sessions.start(user.id, response)
    flash("Your password is changed. Other browsers were signed out.")
    return response


@blueprint.post("/sign-out")
@viewer
def sign_out() -> Response:
    response = redirect(url_for("sign_in.form"))
    sessions.end(response)
    return response
