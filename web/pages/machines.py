"""What we learned about each physical machine, whoever rents it out and under whatever offer."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, abort, flash, redirect, render_template, request, url_for
from sqlalchemy import func, or_, select
from werkzeug.wrappers import Response

from jobs.domain.market_models import Machine, Mark
from jobs.domain.work import transaction
from jobs.market import reputation
from web import charts, memory, paging, queries, scope
from web.access import admin, operator, viewer
from web.status import MARK

blueprint = Blueprint("machines", __name__)

COLUMNS = {
    "seen": Machine.last_seen_ms,
    "rate": Machine.proofs_per_hour,
    "measured": Machine.measured_ms,
    "machine": Machine.machine_id,
}
FILTERS = {"good": "Good", **{kind: MARK[kind].word for kind in reputation.KINDS}, "new": "Not measured"}
REASON = 500


@blueprint.get("/machines")
@viewer
def page() -> str:
    session, now = scope.db(), scope.now_ms()
    order = paging.order(COLUMNS, "-seen")
    query = select(Machine)
    if text := paging.arg("q"):
        query = query.where(
            or_(queries.starts_with(Machine.machine_id, text), Machine.description.icontains(text, autoescape=True))
        )
    if (host := paging.arg("host")) and (provider := paging.arg("provider", 16)):
        query = query.where(Machine.provider == provider, Machine.host_id == host)
    if (mark := paging.arg("mark")) in FILTERS:
        query = query.where(memory.marked(mark, now))
    rows = session.scalars(
        query.order_by(order.apply(COLUMNS), Machine.machine_id).offset(paging.skip()).limit(paging.PER_PAGE + 1)
    ).all()
    pairs = [(row.provider, row.machine_id) for row in rows]
    return render_template(
        "machines.html",
        machines=paging.page(rows, session.scalar(select(func.count()).select_from(query.subquery()))),
        known=memory.known(session, pairs, now),
        order=order,
        filters=FILTERS,
        mark=mark,
        host=host,
        q_machine=text,
        rentals=memory.rentals_of(session, pairs),
    )


def _machine(provider: str, machine_id: str) -> Machine:
    machine = scope.db().get(Machine, (provider, machine_id))
    if machine is None:
        abort(404, description=f"No machine {machine_id[:40]} of {provider[:16]} has been seen.")
    return machine


@blueprint.get("/machines/<provider>/<machine_id>")
@viewer
def one(provider: str, machine_id: str) -> str:
    return _show(_machine(provider, machine_id))


def _show(machine: Machine, problems: dict[str, str] | None = None) -> str:
    now = scope.now_ms()
    past = memory.past(scope.db(), machine, now)
    newest = past.measurements[0].work if past.measurements else ""
    alike = [m for m in reversed(past.measurements) if m.work == newest]
    return render_template(
        "machine.html",
        machine=machine,
        past=past,
        status_=memory.mark_status(machine.measured_ms, past.active),
        work=newest,
        chart=charts.over_time([(m.at_ms, m.proofs_per_hour, m.low, m.high) for m in alike], "proofs/h"),
        kinds=reputation.KINDS,
        problems=problems or {},
        form=request.form,
    )


@blueprint.post("/machines/<provider>/<machine_id>/mark")
@operator
def mark(provider: str, machine_id: str) -> Response | tuple[str, int]:
    """A mark by hand. A machine that works for someone now is marked only when that was confirmed; it works on."""
    machine = _machine(provider, machine_id)
    kind, reason = request.form.get("kind", ""), request.form.get("reason", "").strip()[:REASON]
    problems = {}
    if kind not in reputation.KINDS:
        problems["kind"] = "Choose what is wrong with it."
    if not reason:
        problems["reason"] = "Say why: whoever rents next reads it."
    if problems:
        return _show(machine, problems), 400
    confirmed, now = request.form.get("confirm") == "yes", scope.now_ms()
    try:
        with transaction(scope.context()) as session:
            reputation.mark_by_hand(session, now, provider, machine_id, kind, reason, scope.actor(), confirmed)
    except reputation.MarkRefused as error:
        return _show(machine, {"confirm": f"Not marked: {error}."}), 409
    flash(f"Machine {machine_id} is marked {MARK[kind].word.lower()}. What runs on it now goes on.")
    return redirect(url_for("machines.one", provider=provider, machine_id=machine_id))


def _decide(provider: str, machine_id: str, mark_id: int, decide: Callable[..., Mark], done: str) -> Response:
    """Appeal or withdraw a mark of this machine, with the reason of the form."""
    _machine(provider, machine_id)
    mark = scope.db().get(Mark, mark_id)
    if mark is None or (mark.provider, mark.machine_id) != (provider, machine_id):
        abort(404, description="This machine has no such mark.")
    reason = request.form.get("reason", "").strip()[:REASON]
    if not reason:
        flash("Say why: the reason is kept with the mark. Nothing changed.")
    else:
        try:
            with transaction(scope.context()) as session:
                decide(session, scope.now_ms(), mark_id, scope.actor(), reason)
            flash(done)
        except reputation.MarkRefused as error:
            flash(f"Nothing changed: {error}.")
    return redirect(url_for("machines.one", provider=provider, machine_id=machine_id))


@blueprint.post("/machines/<provider>/<machine_id>/marks/<int:mark_id>/appeal")
@operator
def appeal(provider: str, machine_id: str, mark_id: int) -> Response:
    """Say why a mark is wrong; an admin decides."""
    done = "The appeal is noted. An admin can withdraw the mark."
    return _decide(provider, machine_id, mark_id, reputation.appeal, done)


@blueprint.post("/machines/<provider>/<machine_id>/marks/<int:mark_id>/withdraw")
@admin
def withdraw(provider: str, machine_id: str, mark_id: int) -> Response:
    done = "The mark is withdrawn; it stays readable on this page."
    return _decide(provider, machine_id, mark_id, reputation.withdraw, done)
