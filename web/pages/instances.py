"""One rented machine: what it is, what it did and when, what it costs, and the way to destroy it."""

from __future__ import annotations

from flask import Blueprint, abort, flash, redirect, render_template, request, url_for
from sqlalchemy import func, select
from werkzeug.wrappers import Response

from jobs.domain.instances import DestroyRefused, request_destroy
from jobs.domain.models import Artifact, Instance
from jobs.domain.states import SEALING, WORKING
from web import live, paging, queries, scope
from web.access import operator, viewer

blueprint = Blueprint("instances", __name__)
ARTIFACTS_PER_PAGE = 200


def load(instance_id: str) -> Instance:
    """The instance of an address, or 404."""
    instance = queries.load_instance(scope.db(), instance_id)
    if instance is None:
        abort(404, description=f"There is no instance {instance_id[:40]}.")
    return instance


@blueprint.get("/instances/<instance_id>")
@viewer
def page(instance_id: str) -> str:
    instance = load(instance_id)
    return render_template(
        "instance.html",
        instance=instance,
        parts=live.instance_parts(scope.context(), scope.db(), instance),
        destroyable=instance.state in (*WORKING, SEALING),
    )


@blueprint.get("/instances/<instance_id>/artifacts")
@viewer
def artifacts(instance_id: str) -> str:
    instance = load(instance_id)
    query = select(Artifact).where(Artifact.instance_id == instance_id)
    rows = (
        scope.db()
        .scalars(query.order_by(Artifact.name).offset(paging.skip(ARTIFACTS_PER_PAGE)).limit(ARTIFACTS_PER_PAGE + 1))
        .all()
    )
    total = scope.db().scalar(query.with_only_columns(func.count()))
    return render_template("artifacts.html", instance=instance, artifacts=paging.page(rows, total, ARTIFACTS_PER_PAGE))


@blueprint.get("/instances/<instance_id>/force")
@operator
def force_form(instance_id: str) -> str:
    """The warning that stands before a destroy that loses evidence."""
    return render_template("force.html", instance=load(instance_id), problems={}, reason="")


@blueprint.post("/instances/<instance_id>/destroy")
@operator
def destroy(instance_id: str) -> Response | tuple[str, int]:
    """Seal and destroy; with `force`, typed confirmation and a reason, destroy without the evidence."""
    instance = load(instance_id)
    reason = request.form.get("reason", "").strip()[:500]
    force = request.form.get("force") == "yes"
    if force and request.form.get("confirm", "").strip() != instance_id[:8]:
        problems = {"confirm": f"Type {instance_id[:8]} to confirm."}
        return render_template("force.html", instance=instance, problems=problems, reason=reason), 400
    try:
        request_destroy(scope.context(), instance_id, scope.actor(), reason, force=force)
        flash("Destroyed by force, without the rest of its evidence." if force else "It keeps its logs, then goes.")
    except DestroyRefused as error:
        flash(f"Not destroyed: {error}.")
    return redirect(url_for("instances.page", instance_id=instance_id))
