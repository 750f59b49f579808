"""What could be rented, as the last scan saw it; choose some and go on to a new run."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy import func, select
from werkzeug.wrappers import Response

from jobs.domain.models import Event, Offer
from jobs.queue import QueueUnavailable, request_scan
from web import paging, queries, scope
from web.access import operator, viewer

blueprint = Blueprint("offers", __name__)

COLUMNS = {
    "price": Offer.dollars_per_hour,
    "gpu": Offer.gpu_model,
    "cores": Offer.cpu_cores,
    "ram": Offer.ram_bytes,
    "disk": Offer.disk_bytes,
}
GIB = 1024**3
# The worker reads it from the provider's own settings; the site only has to offer what exists.
PROVIDERS = ("local",)


def _figure(name: str) -> float | None:
    """A number in a filter; None when it is empty or no number."""
    try:
        value = float(paging.arg(name, 20))
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None


@blueprint.get("/offers")
@viewer
def page() -> str:
    session = scope.db()
    order = paging.order(COLUMNS, "price")
    query = select(Offer).where(Offer.gone_ms.is_(None))
    if gpu := paging.arg("gpu"):
        query = query.where(Offer.gpu_model.icontains(gpu, autoescape=True))
    for name, column, unit in (
        ("gpus", Offer.num_gpus, 1),
        ("cores", Offer.cpu_cores, 1),
        ("ram", Offer.ram_bytes, GIB),
        ("disk", Offer.disk_bytes, GIB),
    ):
        if (least := _figure(name)) is not None:
            query = query.where(column >= least * unit)
    if (most := _figure("price")) is not None:
        query = query.where(Offer.dollars_per_hour <= most)
    rows = session.scalars(
        query.order_by(order.apply(COLUMNS), Offer.offer_id).offset(paging.skip()).limit(paging.PER_PAGE + 1)
    ).all()
    total = session.scalar(select(func.count()).select_from(query.subquery()))
    return render_template(
        "offers.html",
        offers=paging.page(rows, total),
        order=order,
        machines=queries.machines_of(session, ((o.provider, o.machine_id) for o in rows)),
        seen_ms=session.scalar(select(func.max(Offer.seen_ms))),
        last_scan=session.scalar(
            select(Event)
            .where(Event.kind.in_(("offers.scanned", "offers.scan_failed")))
            .order_by(Event.id.desc())
            .limit(1)
        ),
        filtered=any(request.args.get(name) for name in ("gpu", "gpus", "cores", "ram", "disk", "price")),
    )


@blueprint.post("/offers/scan")
@operator
def scan() -> Response:
    try:
        for provider in PROVIDERS:
            request_scan(scope.context(), provider, scope.actor())
        flash("A scan is on its way; the list is fresh in a few seconds. Reload to see it.")
    except QueueUnavailable as error:
        flash(f"No scan now: {error}")
    return redirect(url_for("offers.page"))
