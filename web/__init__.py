"""The Flask site: pages, forms, server-sent events; and the machine app beside it.

`create_app` is the admin site. `web.machine_app` is another WSGI app on another port, for rented
machines only; the two share no route, no cookie and no import.

May import `jobs`, `logs` and `gpu.protocol`. Holds no business rule, calls no provider, speaks to S3
only through `logs`, and puts no SQL in a template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask

    from jobs.context import Context

MAX_FORM_BYTES = 256 * 1024


def create_app(context: Context | None = None) -> Flask:
    """The admin site over `context` (default: the one of this process). Opens no connection by itself."""
    from jobs.context import current
    from web import access, errors, log_index, pages, scope, security, stream, views

    context = context or current()
    app = views.Site("web", static_folder="static", template_folder="templates")
    app.config.update(
        SECRET_KEY=security.secret_key(context.settings.state_dir),
        MAX_CONTENT_LENGTH=MAX_FORM_BYTES,
        MAX_FORM_MEMORY_SIZE=MAX_FORM_BYTES,
        MAX_FORM_PARTS=500,
        WTF_CSRF_TIME_LIMIT=None,  # the token lives as long as the session it is signed for
        RATELIMIT_STORAGE_URI="memory://",
        SEND_FILE_MAX_AGE_DEFAULT=365 * 24 * 3600,  # every address of a static file carries its hash
    )
    scope.attach(app, context)
    errors.attach(app)
    security.attach(app)
    access.attach(app)
    views.attach(app)
    stream.attach(app)
    log_index.attach(app)
    pages.attach(app)
    return app
