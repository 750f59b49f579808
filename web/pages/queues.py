"""The RQ queues, their workers and what failed. All of it is in Redis, so this page says calmly when Redis is away."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from jobs.queue import QueueUnavailable, overview, requeue
from web import scope
from web.access import operator, viewer

blueprint = Blueprint("queues", __name__)


@blueprint.get("/queues")
@viewer
def page() -> str:
    try:
        return render_template("queues.html", queues=overview(scope.context()), away="")
    except QueueUnavailable as error:
        return render_template("queues.html", queues=None, away=str(error))


@blueprint.post("/queues/requeue")
@operator
def requeue_job() -> Response:
    job_id = request.form.get("job", "")[:200]
    try:
        done = requeue(scope.context(), job_id, scope.actor())
        flash(f"{job_id} is queued again." if done else f"{job_id} is not among the failed jobs any more.")
    except QueueUnavailable as error:
        flash(str(error))
    return redirect(url_for("queues.page"))
