"""What became of a run, beyond its own page: every paid second, and where it left the way of a success."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Blueprint, render_template

from jobs.domain.models import Instance, Run
from jobs.story import waterfall
from jobs.story.diff import Comparison, compare, folded
from jobs.story.nearest import Near, nearest_success
from logs.errors import StoreError
from web import diagnoses, paging, queries, scope
from web.access import viewer
from web.pages.archive import reader_of
from web.pages.runs import load

blueprint = Blueprint("story", __name__)


@blueprint.get("/runs/<run_id>/waterfall")
@viewer
def paid(run_id: str) -> str:
    """Milliseconds and cents of every machine of a run, by what they went to."""
    run = load(run_id)
    now = scope.now_ms()
    machines = [(i, w) for i in run.instances if (w := waterfall.of_instance(scope.db(), i, now)) is not None]
    return render_template("waterfall.html", run=run, machines=machines)


@dataclass(frozen=True)
class Chosen:
    """What of a failure is compared, around line `line` of `lines` of a stream. `cited`: a diagnosis points at it."""

    instance: Instance
    streams: list[str]
    stream: str
    line: int
    lines: int
    cited: bool


@blueprint.get("/runs/<run_id>/diff")
@viewer
def diff(run_id: str) -> str:
    """A failure beside the nearest success. `stream` and `line` choose the stretch; else the decisive line does."""
    run = load(run_id)
    chosen = _chosen(run)
    near = nearest_success(scope.db(), chosen.instance, run) if chosen else None
    comparison, trouble = None, ""
    if chosen and near:
        try:
            comparison, trouble = _compared(chosen, near)
        except StoreError as error:
            trouble = f"The lines can't be read now: {error}"
    return render_template(
        "diff.html",
        run=run,
        chosen=chosen,
        near=near,
        comparison=comparison,
        pieces=folded(comparison.rows) if comparison else [],
        trouble=trouble,
    )


def _chosen(run: Run) -> Chosen | None:
    """The newest machine with a diagnosis, or with logs; None where there is no line at all."""
    session = scope.db()
    shown = diagnoses.of_run(session, run)
    summaries = queries.streams_of(session, [i.id for i in run.instances])
    with_logs = {summary.instance_id for summary in summaries}
    candidates = [s.row.instance for s in shown] + sorted(run.instances, key=lambda i: -i.created_ms)
    instance = next((i for i in candidates if i.id in with_logs), None)
    if instance is None:
        return None
    lines = {s.stream: s.lines for s in summaries if s.instance_id == instance.id}
    top = next((s.report.top for s in shown if s.row.instance_id == instance.id), None)
    places = [(e.file.removesuffix(".log"), e.line) for e in (top.evidence if top else []) if e.file.endswith(".log")]
    stream, line = next((place for place in places if place[0] in lines), ("", 0))
    asked, number = paging.arg("stream", 32), paging.arg("line", 16)
    if asked in lines and asked != stream:
        stream, line = asked, 0
    stream = stream or ("bench" if "bench" in lines else next(iter(sorted(lines))))
    cited = line > 0 and not number
    if number.isascii() and number.isdigit():
        line = max(int(number), 1)
    last = max(lines[stream], 1)
    return Chosen(instance, sorted(lines), stream, min(line or last, last), last, cited)


def _compared(chosen: Chosen, near: Near) -> tuple[Comparison | None, str]:
    """The comparison, or why there is none. Raises `StoreError`."""
    if not any(s.stream == chosen.stream for s in queries.streams_of(scope.db(), [near.instance.id])):
        return None, f"The success has no stream {chosen.stream}; choose another one."
    failed, well = reader_of(chosen.instance, chosen.stream), reader_of(near.instance, chosen.stream)
    return compare(failed.lines, failed.ended_lines, well.lines, well.ended_lines, chosen.line), ""
