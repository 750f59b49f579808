"""What gunicorn serves: `web.wsgi:site` and `web.wsgi:machine`, each built at first use.

By `__getattr__`, so that the process of one app never imports the other. Gunicorn asks for it after its fork.
"""

from __future__ import annotations

import logging
from typing import Any

from jobs.context import current
from jobs.domain.db import DatabaseUnavailable, held_open


def __getattr__(name: str) -> Any:
    if name == "site":
        from web import create_app

        app = create_app()
    elif name == "machine":
        from web.machine_app import create_machine_app

        app = create_machine_app()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        globals()["held"] = held_open(current().engine)
    except DatabaseUnavailable as error:
        logging.getLogger("provefleet.web").warning("%s; each call opens it by itself, which is slower", error)
    globals()[name] = app
    return app
