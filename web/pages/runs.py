"""Runs: the list, one run with everything about it, and what an operator can do to it."""

from __future__ import annotations

from flask import Blueprint, abort, flash, redirect, render_template, request, url_for
from sqlalchemy import func, select
from werkzeug.wrappers import Response

from jobs.domain import archive
from jobs.domain.archive_models import Keep
from jobs.domain.models import Instance, Proof, Run
from jobs.domain.runs import InvalidRequest, cancel_run, run_again
from web import live, paging, queries, scope
from web.access import operator, viewer
from web.status import RUN

blueprint = Blueprint("runs", __name__)

COLUMNS = {"created": Run.created_ms, "ended": Run.ended_ms}
PROOFS_PER_PAGE = 200


@blueprint.get("/runs")
@viewer
def list_page() -> str:
    session = scope.db()
    order = paging.order(COLUMNS, "-created")
    query = select(Run)
    if (state := paging.arg("state")) in RUN:
        query = query.where(Run.state == state)
    if (kind := paging.arg("kind")) in ("benchmark", "prove"):
        query = query.where(Run.kind == kind)
    if by := paging.arg("by"):
        query = query.where(Run.created_by == by)
    if machine := paging.arg("machine"):
        query = query.where(Run.id.in_(select(Instance.run_id).where(Instance.machine_id == machine)))
    total = paging.count(session, query.with_only_columns(Run.id))
    rows = session.scalars(
        queries.with_parts(query)
        .order_by(order.apply(COLUMNS), Run.id)
        .offset(paging.skip())
        .limit(paging.PER_PAGE + 1)
    ).all()
    return render_template(
        "runs.html",
        runs=paging.page(rows, total),
        order=order,
        state=state,
        states=RUN,
        kind=kind,
        by=by,
        machine=machine,
        filtered=bool(state or kind or by or machine),
    )


def load(run_id: str) -> Run:
    """The run of an address, or 404."""
    run = queries.load_run(scope.db(), run_id)
    if run is None:
        abort(404, description=f"There is no run {run_id[:40]}.")
    return run


@blueprint.get("/runs/<run_id>")
@viewer
def page(run_id: str) -> str:
    run = load(run_id)
    kept = scope.db().get(Keep, run_id)
    return render_template("run.html", run=run, kept=kept, parts=live.run_parts(scope.context(), scope.db(), run))


@blueprint.get("/runs/<run_id>/proofs")
@viewer
def proofs(run_id: str) -> str:
    """Every proof of a run; the run's own page shows the first and the failed ones."""
    run = load(run_id)
    query = select(Proof).where(Proof.run_id == run_id)
    if (verdict := paging.arg("verdict")) in ("valid", "invalid", "error", "none"):
        query = query.where(Proof.verdict == ("" if verdict == "none" else verdict))
    total = scope.db().scalar(query.with_only_columns(func.count(Proof.id)))
    rows = (
        scope.db()
        .scalars(
            query.order_by(Proof.round, Proof.index).offset(paging.skip(PROOFS_PER_PAGE)).limit(PROOFS_PER_PAGE + 1)
        )
        .all()
    )
    return render_template("proofs.html", run=run, proofs=paging.page(rows, total, PROOFS_PER_PAGE), verdict=verdict)


@blueprint.post("/runs/<run_id>/cancel")
@operator
def cancel(run_id: str) -> Response:
    load(run_id)
    reason = request.form.get("reason", "").strip()[:500]
    if not reason:
        flash("Say why: the reason is kept with the run. Nothing was cancelled.")
    elif not cancel_run(scope.context(), run_id, scope.actor(), reason):
        flash("The run had ended already; its verdict stands.")
    else:
        flash("The run is cancelled. Its machine keeps the logs, then goes.")
    return redirect(url_for("runs.page", run_id=run_id))


@blueprint.post("/runs/<run_id>/keep")
@operator
def keep(run_id: str) -> Response:
    """Its logs and artifacts never expire, or, with `end`, as those of other runs do."""
    load(run_id)
    reason = request.form.get("reason", "").strip()[:500]
    if request.form.get("end"):
        archive.let_go(scope.context(), run_id, scope.actor())
        flash("Its logs and artifacts expire as those of other runs do.")
    elif not reason:
        flash("Say why: the reason is kept with the run. Nothing was changed.")
    else:
        archive.keep_run(scope.context(), run_id, scope.actor(), reason)
        flash("Its logs and artifacts are kept for ever.")
    return redirect(url_for("runs.page", run_id=run_id))


@blueprint.post("/runs/<run_id>/again")
@operator
def again(run_id: str) -> Response:
    load(run_id)
    try:
        new = run_again(scope.context(), run_id, scope.actor())
    except InvalidRequest as error:
        flash(f"It can't be run again: {error}")
        return redirect(url_for("runs.page", run_id=run_id))
    return redirect(url_for("runs.page", run_id=new))
