"""The box on top: ids of runs and instances, numbers and names of machines."""

from __future__ import annotations

from flask import Blueprint, redirect, render_template, url_for
from werkzeug.wrappers import Response

from web import memory, paging, queries, scope
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
        machine = found.machines[0]
        return redirect(url_for("machines.one", provider=machine.provider, machine_id=machine.machine_id))
    pairs = ((machine.provider, machine.machine_id) for machine in found.machines)
    known = memory.known(scope.db(), pairs, scope.now_ms())
    return render_template("search.html", q=text, found=found, machines=known)
