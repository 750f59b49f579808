"""One module a page, each with a blueprint of its name. A page reads and shows; what changes
something calls the domain (`jobs.domain`, `jobs.queue`) and redirects."""

from __future__ import annotations

from flask import Flask


def attach(app: Flask) -> None:
    from web.pages import health, overview, sign_in

    for module in (health, overview, sign_in):
        app.register_blueprint(module.blueprint)
