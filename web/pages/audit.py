"""Everything that happened, newest first: who, what, when, why."""

from __future__ import annotations

from flask import Blueprint, render_template
from sqlalchemy import select

from jobs.domain.models import Event
from web import paging, scope
from web.access import viewer

blueprint = Blueprint("audit", __name__)
PER_PAGE = 100


@blueprint.get("/audit")
@viewer
def page() -> str:
    """Filters: `actor`, `kind` (a whole kind or its first part), `run`; `before` is the id to go on from."""
    query = select(Event)
    if actor := paging.arg("actor"):
        query = query.where(Event.actor == actor)
    if kind := paging.arg("kind"):
        query = query.where(Event.kind.startswith(kind, autoescape=True))
    if run := paging.arg("run"):
        query = query.where(Event.run_id == run.lower())
    before = paging.arg("before", 18)
    if before.isascii() and before.isdigit():
        query = query.where(Event.id < int(before))
    rows = scope.db().scalars(query.order_by(Event.id.desc()).limit(PER_PAGE + 1)).all()
    return render_template(
        "audit.html", events=rows[:PER_PAGE], more=len(rows) > PER_PAGE, actor=actor, kind=kind, run=run, before=before
    )
