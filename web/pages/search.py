"""The box on top: ids of runs and instances, numbers and names of machines."""

from __future__ import annotations

from flask import Blueprint, redirect, render_template, url_for
from werkzeug.wrappers import Response

from web import paging, queries, scope
from web.access import viewer

blueprint = Blueprint("search", __name__)


@blueprint.get("/search")
@viewer
def page() -> str | Response:
    """What starts with, or holds, the text; a single hit is opened at once."""
    text = paging.arg("q")
    found = queries.search(scope.db(), text) if text else queries.Found([], [], [])
    if found.count == 1:
        if found.runs:
            return redirect(url_for("runs.page", run_id=found.runs[0].id))
        if found.instances:
            return redirect(url_for("instances.page", instance_id=found.instances[0].id))
        return redirect(url_for("machines.page", q=found.machines[0].machine_id))
    return render_template("search.html", q=text, found=found)
