"""What is running, what it costs, what broke: the first glance."""

from __future__ import annotations

from flask import Blueprint, render_template

from web.access import viewer

blueprint = Blueprint("overview", __name__)


@blueprint.get("/")
@viewer
def page() -> str:
    return render_template("overview.html")
