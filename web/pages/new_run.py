"""Asking for a run: what to prove, where, within which limits, with the most it may cost always in view."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy import select
from sqlalchemy.orm import defer
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response

from jobs import payloads
from jobs.domain.models import Input, Offer
from jobs.domain.runs import CIRCUITS, CURVES, InvalidRequest, RunRequest, create_run, parse_request, quote
from web import scope
from web.access import operator

blueprint = Blueprint("new_run", __name__)

LIMITS = (
    "max_dollars_per_hour",
    "max_dollars",
    "max_duration_s",
    "min_proofs_per_hour",
    "proofs",
    "concurrency",
    "partition_workers",
    "lease_s",
)
SHOWN_INPUTS = 200
SHOWN_OFFERS = 100
MAX_DEPLOYED = 20


@dataclass(frozen=True)
class Sum:
    """What the form as it stands may cost: dollars an hour and in all; None until a price is known."""

    per_hour: float | None
    reserve: float | None
    runs: int
    text: str


def _defaults() -> MultiDict[str, str]:
    """What an empty form holds: the defaults of `RunRequest`, and the choices that came with the link."""
    fields = RunRequest.model_fields
    form = MultiDict({name: str(fields[name].default) for name in LIMITS if fields[name].default is not None})
    form.update(
        {
            "kind": "benchmark",
            "payload": "groth16",
            "source": "builtin",
            "circuit_kind": CIRCUITS[0],
            "circuit_size": "4096",
            "circuit_curve": "bls12381",
            "provider": "local",
            "request_id": secrets.token_hex(16),
        }
    )
    for name in ("kind", "zkey_id", "provider", "source"):
        if value := request.args.get(name):
            form[name] = value
    for name in ("offer", "witness_ids"):
        form.setlist(name, request.args.getlist(name))
    return form


def read_form(form: MultiDict[str, str]) -> dict[str, Any]:
    """The form as `RunRequest` has it: what is empty is left out."""
    data: dict[str, Any] = {
        name: form[name].strip() for name in ("kind", "payload", "provider", *LIMITS) if form.get(name, "").strip()
    }
    if form.get("source") == "own":
        data["zkey_id"] = form.get("zkey_id") or None
        data["witness_ids"] = form.getlist("witness_ids")
    else:
        parts = (form.get(f"circuit_{name}", "").strip() for name in ("kind", "size", "curve"))
        data["circuit"] = "/".join(parts)
    return data


def chosen_offers(form: MultiDict[str, str]) -> list[str | None]:
    """The offers to deploy on, one run each; [None]: the cheapest that fits."""
    chosen = list(dict.fromkeys(value for value in form.getlist("offer") if value))[:MAX_DEPLOYED]
    return list(chosen) or [None]


def add_up(form: MultiDict[str, str]) -> Sum:
    """What the form may cost. Raises `InvalidRequest`."""
    data = read_form(form)
    quotes = [quote(scope.context(), parse_request({**data, "offer_id": offer})) for offer in chosen_offers(form)]
    per_hour = None if any(q.dollars_per_hour is None for q in quotes) else sum(q.dollars_per_hour or 0 for q in quotes)
    reserve = None if any(q.reserve_dollars is None for q in quotes) else sum(q.reserve_dollars or 0 for q in quotes)
    return Sum(per_hour, reserve, len(quotes), quotes[0].text if len(quotes) == 1 else "")


def _show(form: MultiDict[str, str], problems: dict[str, str], status: int = 200) -> tuple[str, int]:
    session = scope.db()
    inputs = session.scalars(
        select(Input)
        .options(defer(Input.vkey))
        .where(Input.state == "ready", Input.circuit.is_(None))
        .order_by(Input.created_ms.desc())
        .limit(SHOWN_INPUTS)
    ).all()
    offers = session.scalars(
        select(Offer)
        .where(Offer.gone_ms.is_(None))
        .order_by(Offer.dollars_per_hour, Offer.offer_id)
        .limit(SHOWN_OFFERS)
    ).all()
    try:
        total: Sum | None = add_up(form)
    except InvalidRequest:
        total = None
    page = render_template(
        "new_run.html",
        form=form,
        problems=problems,
        total=total,
        offers=offers,
        circuits=CIRCUITS,
        curves=CURVES,
        keys=[row for row in inputs if row.kind == "zkey"],
        witnesses=[row for row in inputs if row.kind == "wtns"],
        payloads=[payloads.load(name) for name in payloads.names()],
        settings=scope.context().settings,
    )
    return page, status


@blueprint.get("/runs/new")
@operator
def page() -> tuple[str, int]:
    return _show(_defaults(), {})


@blueprint.get("/runs/new/sum")
@operator
def show_sum() -> str:
    """The sum of the form in the address, for the page's script."""
    try:
        return render_template("new_run_sum.html", total=add_up(request.args), problems={})
    except InvalidRequest as error:
        return render_template("new_run_sum.html", total=None, problems=error.fields)


@blueprint.post("/runs/new")
@operator
def create() -> Response | tuple[str, int]:
    """Start the runs, one an offer; the hidden `request_id` makes a second click the same request."""
    form = request.form
    if form.get("action") == "sum":
        return _show(form, {})
    request_id = form.get("request_id") or secrets.token_hex(16)
    started = []
    try:
        data = read_form(form)
        offers = chosen_offers(form)
        requests = [
            parse_request({**data, "offer_id": offer, "request_id": f"{request_id[:56]}-{i}"})
            for i, offer in enumerate(offers)
        ]
        started = [create_run(scope.context(), one, scope.actor()) for one in requests]
    except InvalidRequest as error:
        return _show(form, error.fields, 400)
    if len(started) == 1:
        return redirect(url_for("runs.page", run_id=started[0]))
    flash(f"{len(started)} runs are queued.")
    return redirect(url_for("runs.list_page"))
