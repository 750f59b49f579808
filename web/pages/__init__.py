"""One module a page, each with a blueprint of its name. A page reads and shows; what changes
something calls the domain (`jobs.domain`, `jobs.queue`) and redirects."""

from __future__ import annotations

from flask import Flask


def attach(app: Flask) -> None:
    from web.pages import (
        archive,
        audit,
        costs,
        decisions,
        diagnosis,
        downloads,
        health,
        inputs,
        instances,
        log_search,
        log_view,
        machines,
        new_run,
        offers,
        overview,
        queues,
        runs,
        search,
        settings,
        sign_in,
        story,
        users,
    )

    modules = (
        archive,
        audit,
        costs,
        decisions,
        diagnosis,
        downloads,
        health,
        inputs,
        instances,
        log_search,
        log_view,
        machines,
        new_run,
        offers,
        overview,
        queues,
        runs,
        search,
        settings,
        sign_in,
        story,
        users,
    )
    for module in modules:
        app.register_blueprint(module.blueprint)
