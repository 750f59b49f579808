"""What could be rented, as the last scan saw it, dearest proof last; choose some and go on to a new run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy import select
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response

from jobs.domain.market_models import Offer
from jobs.domain.models import Event
from jobs.domain.runs import CIRCUITS, CURVES, InvalidRequest, parse_request
from jobs.market import provider_names
from jobs.market.ranking import Ranked
from jobs.queue import QueueUnavailable, request_scan
from web import memory, paging, ranked, run_form, scope
from web.access import operator, viewer

blueprint = Blueprint("offers", __name__)

COLUMNS: dict[str, Callable[[Ranked], Any]] = {
    "proof": lambda r: r.dollars_per_proof,
    "rate": lambda r: r.proofs_per_hour,
    "chance": lambda r: r.chance,
    "learn": lambda r: r.cost_to_find_out_dollars,
    "price": lambda r: r.all_in_dollars_per_hour,
    "gpu": lambda r: (r.offer.gpu_model, r.offer.num_gpus),
}
GIB = 1024**3


@dataclass(frozen=True)
class Filter:
    """One box of the filter: what it is called, how it reads in a sentence, and what it keeps."""

    name: str
    label: str
    words: str
    keeps: Callable[[Offer, float], bool]


FILTERS = (
    Filter("price", "$/h, at most", "under ${}/h", lambda o, x: o.dollars_per_hour <= x),
    Filter("gpus", "GPUs, at least", "{} or more GPUs", lambda o, x: o.num_gpus >= x),
    Filter("vram", "VRAM GiB, at least", "{} GiB of VRAM", lambda o, x: o.gpu_ram_bytes >= x * GIB),
    Filter("cores", "Cores, at least", "{} or more cores", lambda o, x: o.cpu_cores >= x),
    Filter("ram", "RAM GiB, at least", "{} GiB of RAM", lambda o, x: o.ram_bytes >= x * GIB),
    Filter("disk", "Disk GiB, at least", "{} GiB of disk", lambda o, x: o.disk_bytes >= x * GIB),
)
"""The first is always in sight; the others lie behind "More limits" until one of them is used."""


def _figure(name: str) -> float | None:
    """A number in a filter; None when it is empty or no number."""
    try:
        value = float(paging.arg(name, 20))
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None


def _filtered(rows: Sequence[Ranked]) -> tuple[list[Ranked], list[str]]:
    """The rows that the boxes keep, and the boxes in words."""
    kept, words = list(rows), []
    for name, text, of in (
        ("gpu", paging.arg("gpu"), lambda o: o.gpu_model or o.cpu_model),
        ("where", paging.arg("where"), lambda o: o.location),
    ):
        if text:
            kept = [r for r in kept if text.casefold() in of(r.offer).casefold()]
            words.append(text if name == "gpu" else f"in {text}")
    for box in FILTERS:
        if (value := _figure(box.name)) is not None:
            kept = [r for r in kept if box.keeps(r.offer, value)]
            words.append(box.words.format(f"{value:g}"))
    return kept, words


def _sorted(rows: list[Ranked], order: paging.Order) -> list[Ranked]:
    """As ranked, or by a column; what is skipped comes last in any case."""
    if order.key == "rank":
        return rows
    by = sorted(rows, key=lambda r: r.offer.offer_id)
    by.sort(key=COLUMNS[order.key], reverse=order.down)
    return sorted(by, key=lambda r: bool(r.skipped))


def _workload(providers: Sequence[str]) -> tuple[MultiDict[str, str], ranked.Workload, dict[str, str]]:
    """The form of the address, the workload that it means, and what is wrong with it (then it is the usual one)."""
    form = run_form.defaults(request.args)
    if form["provider"] not in providers:
        form["provider"] = providers[-1]
    if form.get("zkey_id"):
        form["source"] = "own"
    try:
        asked = parse_request({**run_form.read(form), "kind": "benchmark", "witness_ids": []})
        return form, ranked.Workload.of(asked), {}
    except InvalidRequest as error:
        form = run_form.defaults(MultiDict({"provider": form["provider"]}))
        return form, ranked.Workload.of(parse_request(run_form.read(form))), error.fields


@blueprint.get("/offers")
@viewer
def page() -> str:
    session, context = scope.db(), scope.context()
    providers = provider_names(context.settings)
    form, load, problems = _workload(providers)
    ranking = ranked.shelf.get(context, session, load)
    order = paging.order({"rank": None, **COLUMNS}, "rank")
    rows, words = _filtered(ranking.rows)
    skipped = sum(bool(r.skipped) for r in rows)
    if hidden := request.args.get("skipped") == "hide":
        rows = [r for r in rows if not r.skipped]
    rows = _sorted(rows, order)
    shown = rows[paging.skip() : paging.skip() + paging.PER_PAGE + 1]
    return render_template(
        "offers.html",
        offers=paging.page(shown, len(rows)),
        all=len(ranking.rows),
        skipped=skipped,
        hidden=hidden,
        words=words,
        order=order,
        form=form,
        problems=problems,
        load=load,
        work=ranking.work,
        most=_scale(shown),
        known=memory.known(session, ((r.offer.provider, r.offer.machine_id) for r in shown), scope.now_ms()),
        providers=providers,
        filters=FILTERS,
        more=any(paging.arg(name) for name in ("where", *(box.name for box in FILTERS[1:]))),
        circuits=CIRCUITS,
        curves=CURVES,
        keys=run_form.inputs(session, "zkey"),
        seen_ms=ranking.scan[1],
        last_scan=session.scalar(
            select(Event)
            .where(Event.kind.in_(("offers.scanned", "offers.scan_failed")))
            .order_by(Event.id.desc())
            .limit(1)
        ),
    )


def _scale(rows: Sequence[Ranked]) -> float:
    """The right end of the bars: most intervals fit, one that nobody knows anything of does not squash the rest."""
    highs = sorted(r.dollars_high for r in rows)
    return highs[int(0.9 * (len(highs) - 1))] if highs else 0.0


@blueprint.post("/offers/scan")
@operator
def scan() -> Response:
    try:
        for provider in provider_names(scope.context().settings):
            request_scan(scope.context(), provider, scope.actor())
        flash("A scan is on its way; the list is fresh in a few seconds. Reload to see it.")
    except QueueUnavailable as error:
        flash(f"No scan now: {error}")
    return redirect(url_for("offers.page"))
