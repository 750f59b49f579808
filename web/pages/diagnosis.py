"""Why a run failed, and failures that read alike."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, url_for
from werkzeug.wrappers import Response

from jobs.domain.work import record, transaction
from jobs.queue import QueueUnavailable, enqueue
from web import diagnoses, queries, scope
from web.access import operator, viewer
from web.pages.runs import load

blueprint = Blueprint("diagnosis", __name__)

DAYS = 30
CLUSTERS = 100


@blueprint.get("/runs/<run_id>/diagnosis")
@viewer
def page(run_id: str) -> str:
    """Every machine's report: causes with their lines, what is refuted and why, the story in order."""
    run = load(run_id)
    return render_template("diagnosis.html", run=run, diagnoses=diagnoses.of_run(scope.db(), run))


@blueprint.post("/runs/<run_id>/diagnose")
@operator
def again(run_id: str) -> Response:
    """Have it looked at by today's rules."""
    run = load(run_id)
    context = scope.context()
    sealed = [instance.id for instance in run.instances if instance.evidence]
    if not sealed:
        flash("Nothing of this run is sealed in the archive yet; a diagnosis comes by itself when it is.")
        return redirect(url_for("runs.page", run_id=run_id))
    try:
        for instance_id in sealed:
            enqueue(context, "diagnose", instance_id, context.now_ms())
    except QueueUnavailable as error:
        flash(f"It can't be diagnosed now: {error}")
    else:
        with transaction(context) as session:
            record(session, context.now_ms(), scope.actor(), "run.diagnosis_requested", run_id=run_id)
        flash("It is being diagnosed; reload in a moment.")
    return redirect(url_for("diagnosis.page", run_id=run_id))


@blueprint.get("/failures")
@viewer
def failures() -> str:
    """Failures of the last 30 days that read alike: since when, on how many machines, on which images."""
    since_ms = scope.now_ms() - DAYS * queries.DAY_MS
    return render_template("failures.html", clusters=diagnoses.clusters(scope.db(), since_ms, CLUSTERS), days=DAYS)
