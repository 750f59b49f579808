"""What became of a run, beyond its own page: every paid second."""

from __future__ import annotations

from flask import Blueprint, render_template

from jobs.story import waterfall
from web import scope
from web.access import viewer
from web.pages.runs import load

blueprint = Blueprint("story", __name__)


@blueprint.get("/runs/<run_id>/waterfall")
@viewer
def paid(run_id: str) -> str:
    """Milliseconds and cents of every machine of a run, by what they went to."""
    run = load(run_id)
    now = scope.now_ms()
    machines = [(i, w) for i in run.instances if (w := waterfall.of_instance(scope.db(), i, now)) is not None]
    return render_template("waterfall.html", run=run, machines=machines)
