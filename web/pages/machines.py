"""What we learned about each physical machine, whoever rents it out and under whatever offer."""

from __future__ import annotations

from flask import Blueprint, render_template
from sqlalchemy import func, or_, select

from jobs.domain.models import Instance, Machine
from web import paging, queries, scope
from web.access import viewer

blueprint = Blueprint("machines", __name__)

COLUMNS = {
    "seen": Machine.last_seen_ms,
    "rate": Machine.proofs_per_hour,
    "measured": Machine.measured_ms,
    "machine": Machine.machine_id,
}
MARKS = {"good": "Good", "slow": "Slow", "unstable": "Unstable", "broken": "Broken", "new": "Not measured"}


@blueprint.get("/machines")
@viewer
def page() -> str:
    session = scope.db()
    order = paging.order(COLUMNS, "-seen")
    query = select(Machine)
    if text := paging.arg("q"):
        query = query.where(
            or_(queries.starts_with(Machine.machine_id, text), Machine.description.icontains(text, autoescape=True))
        )
    mark = paging.arg("mark")
    if mark == "good":
        query = query.where(Machine.mark == "", Machine.mark_run_id.is_not(None))
    elif mark == "new":
        query = query.where(Machine.mark == "", Machine.mark_run_id.is_(None))
    elif mark in MARKS:
        query = query.where(Machine.mark == mark)
    rows = session.scalars(
        query.order_by(order.apply(COLUMNS), Machine.machine_id).offset(paging.skip()).limit(paging.PER_PAGE + 1)
    ).all()
    return render_template(
        "machines.html",
        machines=paging.page(rows, session.scalar(select(func.count()).select_from(query.subquery()))),
        order=order,
        marks=MARKS,
        mark=mark,
        q_machine=paging.arg("q"),
        rentals=_rentals(rows),
    )


def _rentals(rows: object) -> dict[tuple[str, str], tuple[int, str]]:
    """How often each machine was rented, and its newest instance, whose evidence can be read."""
    ids = [m.machine_id for m in rows]  # type: ignore[attr-defined]
    if not ids:
        return {}
    newest = (
        select(
            Instance.provider, Instance.machine_id, func.count().label("n"), func.max(Instance.created_ms).label("at")
        )
        .where(Instance.machine_id.in_(ids))
        .group_by(Instance.provider, Instance.machine_id)
        .subquery()
    )
    found = scope.db().execute(
        select(newest.c.provider, newest.c.machine_id, newest.c.n, Instance.id).join(
            Instance,
            (Instance.machine_id == newest.c.machine_id)
            & (Instance.provider == newest.c.provider)
            & (Instance.created_ms == newest.c.at),
        )
    )
    return {(provider, machine): (count, instance) for provider, machine, count, instance in found}
