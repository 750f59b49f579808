"""The archive: streams by run, machine, date and name, and their lines page by page."""

from __future__ import annotations

from flask import Blueprint, abort, redirect, render_template, request, url_for
from sqlalchemy import Select, exists, select
from sqlalchemy.orm import defer, joinedload
from werkzeug.wrappers import Response

from jobs.domain import archive
from jobs.domain.models import Chunk, Input, Instance, Run
from jobs.domain.states import SEALING, WORKING
from logs.errors import StoreError
from logs.levels import LEVELS
from logs.reader import StreamReader
from logs.wire import ChunkRecord
from web import memory, paging, queries, scope
from web.access import viewer
from web.pages.instances import load
from web.pages.log_view import source_of

blueprint = Blueprint("archive", __name__)

PER_PAGE = 25
LINES_PER_PAGE = 500


def _filtered() -> Select[Instance]:
    query = select(Instance)
    if run := paging.arg("run"):
        query = query.where(queries.starts_with(Instance.run_id, run.lower()))
    if machine := paging.arg("machine"):
        query = query.where(Instance.machine_id == machine)
    if (first := paging.date_ms("from")) is not None:
        query = query.where(Instance.created_ms >= first)
    if (last := paging.date_ms("to")) is not None:
        query = query.where(Instance.created_ms < last + queries.DAY_MS)
    if (evidence := paging.arg("evidence")) in ("complete", "gaps", "vanished", "empty"):
        query = query.where(Instance.evidence == evidence)
    if stream := paging.arg("stream"):
        query = query.where(exists().where(Chunk.instance_id == Instance.id, Chunk.stream == stream))
    return query


@blueprint.get("/archive")
@viewer
def page() -> str:
    session = scope.db()
    query = _filtered()
    total = paging.count(session, query.with_only_columns(Instance.id))
    rows = session.scalars(
        query.options(
            defer(Instance.agent_manifest),
            joinedload(Instance.run).joinedload(Run.zkey).load_only(Input.name),
        )
        .order_by(Instance.created_ms.desc())
        .offset(paging.skip(PER_PAGE))
        .limit(PER_PAGE + 1)
    ).all()
    streams: dict[str, list[queries.StreamSummary]] = {}
    for summary in queries.streams_of(session, [row.id for row in rows]):
        streams.setdefault(summary.instance_id, []).append(summary)
    return render_template(
        "archive.html",
        instances=paging.page(rows, total, PER_PAGE),
        streams=streams,
        expired=archive.expired(session, [row.id for row in rows]),
        machines=memory.known(session, ((i.provider, i.machine_id) for i in rows), scope.now_ms()),
        filters={name: paging.arg(name) for name in ("run", "machine", "from", "to", "stream", "evidence")},
        filtered=any(request.args.get(name) for name in ("run", "machine", "from", "to", "stream", "evidence")),
    )


def reader_of(instance: Instance, stream: str) -> StreamReader:
    """A reader of one stream, or 404."""
    rows = scope.db().execute(
        select(*archive.RECORD).where(Chunk.instance_id == instance.id, Chunk.stream == stream).order_by(Chunk.seq)
    )
    records = [ChunkRecord(*row) for row in rows]
    if not records:
        abort(404, description=f"The archive holds no stream {stream[:32]} of this instance.")
    segments = archive.places_of(scope.db(), instance.id)[stream]
    return StreamReader(scope.context().store, instance.run_id or "none", instance.id, stream, records, segments)


def _line(name: str) -> int | None:
    text = paging.arg(name, 16)
    return max(1, int(text)) if text.isascii() and text.isdigit() else None


@blueprint.get("/archive/<instance_id>/<stream>")
@viewer
def lines(instance_id: str, stream: str) -> str | Response:
    """500 rows from `?from=` of a stream, or of several on one clock (`a+b`); `?line=` goes to the page of that row."""
    instance = load(instance_id)
    if (line := _line("line")) is not None:
        first = (line - 1) // LINES_PER_PAGE * LINES_PER_PAGE + 1
        here = url_for("archive.lines", instance_id=instance_id, stream=stream)
        return redirect(f"{here}?from={first}#L{line}")
    source = source_of(instance, stream)
    last = max(source.view.total, 1)
    # Pages begin at 1, 501, 1001: a permalink names the same page for everyone.
    first = (min(_line("from") or 1, last) - 1) // LINES_PER_PAGE * LINES_PER_PAGE + 1
    away = ""
    try:
        shown = source.rows(first, LINES_PER_PAGE)
    except StoreError as error:
        shown, away = [], str(error)
    return render_template(
        "lines.html",
        instance=instance,
        view=source.view,
        stream="+".join(source.view.streams),
        rows=shown,
        first=first,
        last=last,
        per_page=LINES_PER_PAGE,
        away=away,
        expired=archive.expired(scope.db(), [instance_id]).get(instance_id, ""),
        last_page=(last - 1) // LINES_PER_PAGE * LINES_PER_PAGE + 1,
        streams=queries.streams_of(scope.db(), [instance_id]),
        live=instance.state in (*WORKING, SEALING),
        levels=LEVELS,
    )
