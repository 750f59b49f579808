"""What this server runs with. Read-only: settings come from the environment. Secrets are never shown."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from flask import Blueprint, render_template
from pydantic import SecretStr

from jobs.settings import Settings
from web import scope
from web.access import operator

blueprint = Blueprint("settings", __name__)


@dataclass(frozen=True)
class Shown:
    name: str
    value: str
    secret: bool = False


def shown(settings: Settings) -> list[Shown]:
    """Every setting by the name of its variable. Of a secret: whether it is set, or where its address leads."""
    rows = []
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            text = value.get_secret_value()
            rows.append(Shown(f"PROVEFLEET_{name.upper()}", _masked(text), True))
        elif name.endswith("access_key_id"):
            rows.append(Shown(f"PROVEFLEET_{name.upper()}", f"{value[:4]}…" if value else "", True))
        else:
            # A password in any other address is masked as well.
            rows.append(Shown(f"PROVEFLEET_{name.upper()}", _masked(value) if "@" in str(value) else str(value)))
    return rows


def _masked(text: object) -> str:
    parts = urlsplit(str(text))
    if not text:
        return "not set"
    if not parts.scheme or not parts.hostname:
        return "set" if parts.scheme not in ("sqlite", "unix") else f"{parts.scheme}: a file in the state folder"
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.scheme}://{'••••@' if parts.username or parts.password else ''}{parts.hostname}{port}{parts.path}"


@blueprint.get("/settings")
@operator
def page() -> str:
    return render_template("settings.html", settings=shown(scope.context().settings))
