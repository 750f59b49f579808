"""What gunicorn serves: `web.wsgi:site` and `web.wsgi:machine`, each built at first use.

By `__getattr__`, so that the process of one app never imports the other.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "site":
        from web import create_app

        app = create_app()
    elif name == "machine":
        from web.machine_app import create_machine_app

        app = create_machine_app()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = app
    return app
