"""What this server runs with, and whether machines can be rented with it. Read-only: settings come from the
environment. Secrets are never shown."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from flask import Blueprint, render_template
from pydantic import SecretStr
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from jobs.context import Context
from jobs.domain.market_models import Account, Offer, Snapshot
from jobs.market import provider, provider_names, reach
from jobs.settings import Settings
from web import format as f
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


@dataclass(frozen=True)
class Line:
    """One thing that renting from a provider stands on: is it so, and what it is or what to do."""

    name: str
    tone: str
    text: str


def lines(context: Context, session: Session, name: str) -> list[Line]:
    """What a rental from the provider `name` needs, in the order in which it would fail."""
    settings, market, now = context.settings, provider(context, name), context.now_ms()
    found = []
    if market.remote:
        why = reach.refusal(settings, market)
        found.append(Line("Machines reach us", "bad" if why else "good", why or f"at {settings.public_url}"))
        why = reach.relayed(settings, market)
        by = (
            f"through the machine app, since the archive's address {why}"
            if why
            else f"at {settings.s3_public_endpoint}"
        )
        found.append(Line("and the archive", "good", by))
        image = settings.payload_image or "set PROVEFLEET_PAYLOAD_IMAGE to the image they boot, see docs/images.md"
        found.append(Line("Image", "good" if settings.payload_image else "bad", image))
    listed = session.get(Snapshot, name)
    if listed is not None and listed.error:
        found.append(Line("List of what is rented", "bad", listed.error))
    elif listed is not None and listed.ended_ms:
        found.append(Line("List of what is rented", "good", f"read {f.relative(listed.ended_ms, now)}"))
    account = session.get(Account, name)
    if market.bills and account is not None and account.error:
        found.append(Line("Account", "bad", account.error))
    elif market.bills and account is not None and account.read_ms is not None:
        low = (account.credit_dollars or 0.0) < settings.credit_floor_dollars
        text = f"{f.money(account.credit_dollars)} of credit, read {f.relative(account.read_ms, now)}"
        found.append(Line("Account", "bad" if low else "good", text + (", under the floor" if low else "")))
    seen = session.scalar(select(func.max(Offer.seen_ms)).where(Offer.provider == name))
    text = f"the newest scan is from {f.relative(seen, now)}" if seen else "no scan has been made yet"
    found.append(Line("Offers", "good" if seen else "waiting", text))
    return found


@blueprint.get("/settings")
@operator
def page() -> str:
    context, session = scope.context(), scope.db()
    names = provider_names(context.settings)
    return render_template(
        "settings.html",
        settings=shown(context.settings),
        providers={name: lines(context, session, name) for name in names},
    )
