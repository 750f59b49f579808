"""What every template may use: filters, the status table, addresses of static files."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from flask import Flask, g, request, url_for
from markupsafe import Markup

from jobs.domain.market_models import Cap
from jobs.settings import Settings
from logs.ansi import visible
from web import charts, queries, scope
from web import format as f
from web.status import basis_words, event_words, instance_status, run_status, status

NAVIGATION = (
    # endpoint, word, icon, the role that sees it
    ("overview.page", "Overview", "home", "viewer"),
    ("runs.list_page", "Runs", "runs", "viewer"),
    ("offers.page", "Offers", "offers", "viewer"),
    ("machines.page", "Machines", "machines", "viewer"),
    ("archive.page", "Archive", "archive", "viewer"),
    ("diagnosis.failures", "Failures", "failures", "viewer"),
    ("costs.page", "Costs", "costs", "viewer"),
    ("inputs.page", "Inputs", "inputs", "viewer"),
    ("queues.page", "Queues", "queues", "viewer"),
    ("audit.page", "Audit", "audit", "viewer"),
    ("settings.page", "Settings", "settings", "operator"),
    ("users.page", "Users", "users", "admin"),
)


# Pages without an entry of their own, and the entry that they belong to.
UNDER = {"instances": "runs", "story": "runs", "decisions": "costs", "new_run": "runs", "log_search": "archive"}


@lru_cache(maxsize=64)
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:10]


def time_element(ms: int | None) -> Markup:
    """`3 min ago`, the absolute time on hover; the page keeps it ticking."""
    if ms is None:
        return Markup("\u2013")
    return Markup('<time datetime="{}" data-ms="{}" title="{}">{}</time>').format(
        f.utc(ms).isoformat(), ms, f.absolute(ms), f.relative(ms, scope.now_ms())
    )


def money_element(value: float | None) -> Markup:
    if value is None:
        return Markup("\u2013")
    return Markup('<span class="money" title="${}">{}</span>').format(
        f"{value:.8f}".rstrip("0").rstrip("."), f.money(value)
    )


class Site(Flask):
    """Flask whose templates make every string visible before it is escaped, without being asked."""

    jinja_options = {"finalize": f.finalize, "trim_blocks": True, "lstrip_blocks": True}  # noqa: RUF012 - as Flask has it

    def log_exception(self, exc_info: Any) -> None:
        """Nothing: the page of error 500 logs the trace, once and with its id."""


def decoded(data: bytes) -> str:
    """Bytes of a log as text; what is no UTF-8 shows as such."""
    return data.decode("utf-8", "replace").removesuffix("\r")


def attach(app: Flask) -> None:
    environment = app.jinja_env
    environment.filters.update(
        money=money_element,
        plain_money=f.money,
        number=f.number,
        percent=f.percent,
        duration=f.duration,
        cents=f.cents,
        size=f.size,
        absolute=f.absolute,
        clock=f.clock,
        day=f.day,
        when=time_element,
        short=f.short_id,
        visible=visible,
        decoded=decoded,
        significant=f.significant,
        event=event_words,
        basis=basis_words,
    )
    environment.globals.update(
        status=status,
        run_status=run_status,
        instance_status=instance_status,
        what=queries.what,
        plus_minus=f.plus_minus,
        spent=queries.cost,
        measured=queries.measured,
        with_query=with_query,
        interval_bar=charts.interval_bar,
        span_bar=charts.span_bar,
        meter=charts.meter,
        share_bar=charts.share_bar,
        stretch_bar=charts.stretch_bar,
    )

    def asset(name: str) -> str:
        return url_for("static", filename=name, v=_digest(Path(app.static_folder or "") / name))

    environment.globals["asset"] = asset

    environment.globals.update(spend=spend, day_cap=day_cap)

    @app.context_processor
    def shared() -> dict[str, Any]:
        here = UNDER.get(request.blueprint or "", request.blueprint) if request else None
        user = scope.user()
        return {
            "user": user,
            "navigation": NAVIGATION,
            "here": here,
            "now_ms": scope.now_ms(),
            "stand_in": stand_in(scope.context().settings),
        }


def stand_in(settings: Settings) -> str:
    """The address of the marketplace, while it is not the real one and we have a key for it; '' else."""
    real = type(settings).model_fields["vast_url"].default
    return settings.vast_url if settings.vast_url != real and settings.vast_api_key.get_secret_value() else ""


def day_cap() -> float | None:
    """The cap on a day, in dollars, if one is set; read once a request."""
    if "day_cap" not in g:
        cap = scope.db().get(Cap, "day")
        g.day_cap = cap.dollars if cap else None
    return cast("float | None", g.day_cap)


def spend() -> queries.Spend:
    """What was spent today; read once a request, and only where a template asks."""
    if "spend" not in g:
        g.spend = queries.spend(scope.db(), scope.now_ms())
    return cast(queries.Spend, g.spend)


def with_query(**changes: Any) -> str:
    """The address of this page with some of its query changed; None and '' leave."""
    values: dict[str, Any] = {**(request.view_args or {}), **request.args.to_dict(flat=False), **changes}
    return url_for(request.endpoint or "overview.page", **{k: v for k, v in values.items() if v not in (None, "", [])})
