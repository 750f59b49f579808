"""Asking for a run: what to prove, where, within which limits, with the most it may cost always in view."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy import select
from sqlalchemy.orm import Session
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response

from jobs import payloads
from jobs.domain import quotes
from jobs.domain.market_models import Cap
from jobs.domain.runs import CIRCUITS, CURVES, InvalidRequest, RunRequest, create_run, parse_request
from jobs.market import budget, provider, provider_names, reach
from jobs.market.ranking import Ranked
from web import memory, ranked, run_form, scope
from web.access import operator

blueprint = Blueprint("new_run", __name__)

SHOWN_OFFERS = 60
WORDS = {"local": "local: this machine", "vast": "vast: rent on Vast.ai"}


@dataclass(frozen=True)
class Sum:
    """What the form as it stands may cost: dollars an hour and in all; None until a price is known."""

    per_hour: float | None
    reserve: float | None
    runs: int
    text: str
    caps: list[tuple[str, float, float]] = field(default_factory=list)
    """(whose, what counts against it now, the cap)"""
    refusals: list[str] = field(default_factory=list)
    """Why nothing would be rented now, though the form is right."""


def add_up(form: MultiDict[str, str]) -> Sum:
    """What the form may cost. Raises `InvalidRequest`."""
    context, session = scope.context(), scope.db()
    data = run_form.read(form)
    asked = [parse_request({**data, "offer_id": offer}) for offer in run_form.offers(form)]
    made = [quotes.quote(context, one) for one in asked]
    per_hour = None if any(q.dollars_per_hour is None for q in made) else sum(q.dollars_per_hour or 0 for q in made)
    reserve = None if any(q.reserve_dollars is None for q in made) else sum(q.reserve_dollars or 0 for q in made)
    text = made[0].text if len(made) == 1 else ""
    return Sum(per_hour, reserve, len(made), text, _caps(session), _refusals(session, asked, reserve))


def _caps(session: Session) -> list[tuple[str, float, float]]:
    now, mine = scope.now_ms(), budget.USER + scope.actor()
    words = {"day": "today", "month": "this month", mine: "by you this month"}
    caps = session.scalars(select(Cap).where(Cap.scope.in_(words))).all()
    return [(words[cap.scope], budget.committed(session, cap.scope, now).dollars, cap.dollars) for cap in caps]


def _refusals(session: Session, asked: Sequence[RunRequest], reserve: float | None) -> list[str]:
    """Reach, caps and credit, as the job will find them; '' ones left out."""
    context, first = scope.context(), asked[0]
    if first.provider not in provider_names(context.settings):
        return [f"there is no provider {first.provider} here; see Settings"]
    found = [reach.refusal(context.settings, provider(context, first.provider))]
    for one in asked:
        found += quotes.refused(context, session, one, scope.actor()).values()
    run = ranked.run_of(context, session, ranked.Workload.of(first))
    run.created_by = scope.actor()
    with context.sessions() as own:  # `refusal` lets one at a time look, and the lock ends with its session
        found.append(budget.refusal(context, own, run, reserve or 0.0))
    return list(dict.fromkeys(text for text in found if text))


def _forecasts(form: MultiDict[str, str]) -> tuple[list[Ranked], int]:
    """The offers to choose from, best first, those chosen before all others; and how many are skipped."""
    try:
        asked = parse_request({**run_form.read(form), "offer_id": None})
    except InvalidRequest:
        asked = parse_request({"circuit": "chain/4096/bls12381", "provider": form["provider"][:16]})
    rows = ranked.shelf.get(scope.context(), scope.db(), ranked.Workload.of(asked)).rows
    chosen = set(form.getlist("offer"))
    first = [row for row in rows if row.offer.offer_id in chosen]
    rest = [row for row in rows if row.offer.offer_id not in chosen and not row.skipped]
    return [*first, *rest][: max(SHOWN_OFFERS, len(first))], sum(bool(row.skipped) for row in rows)


def _show(form: MultiDict[str, str], problems: dict[str, str], status: int = 200) -> tuple[str, int]:
    session, context = scope.db(), scope.context()
    try:
        total: Sum | None = add_up(form)
    except InvalidRequest:
        total = None
    offers, skipped = _forecasts(form)
    pairs = ((row.offer.provider, row.offer.machine_id) for row in offers)
    page = render_template(
        "new_run.html",
        form=form,
        problems=problems,
        total=total,
        offers=offers,
        skipped=skipped,
        known=memory.known(session, pairs, scope.now_ms()),
        providers={name: WORDS.get(name, name) for name in provider_names(context.settings)},
        circuits=CIRCUITS,
        curves=CURVES,
        keys=run_form.inputs(session, "zkey"),
        witnesses=run_form.inputs(session, "wtns"),
        payloads=[payloads.load(name) for name in payloads.names()],
        settings=context.settings,
    )
    return page, status


@blueprint.get("/runs/new")
@operator
def page() -> tuple[str, int]:
    return _show(run_form.defaults(request.args), {})


@blueprint.get("/runs/new/sum")
@operator
def show_sum() -> str:
    """The sum of the form in the address, for the page's script; `view=line` is for the page of offers."""
    template = "offers_sum.html" if request.args.get("view") == "line" else "new_run_sum.html"
    try:
        return render_template(template, total=add_up(request.args), problems={})
    except InvalidRequest as error:
        return render_template(template, total=None, problems=error.fields)


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
        data = run_form.read(form)
        requests = [
            parse_request({**data, "offer_id": offer, "request_id": f"{request_id[:56]}-{i}"})
            for i, offer in enumerate(run_form.offers(form))
        ]
        started = [create_run(scope.context(), one, scope.actor()) for one in requests]
    except InvalidRequest as error:
        return _show(form, error.fields, 400)
    if len(started) == 1:
        return redirect(url_for("runs.page", run_id=started[0]))
    flash(f"{len(started)} runs are queued.")
    return redirect(url_for("runs.list_page"))
