"""Whether this process answers: for supervisors and load balancers, and of no use to anyone else."""

from __future__ import annotations

from flask import Blueprint

from web.access import public

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
@public
def healthz() -> tuple[str, int, dict[str, str]]:
    return "ok\n", 200, {"Content-Type": "text/plain; charset=utf-8"}
