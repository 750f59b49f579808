"""What the log viewer asks for: rows, the next line of a kind, and how much was written when. JSON, and no HTML in it.

A view is one stream, or several on one clock (`bench+daemon`). Rows are numbered from 1; of one stream they are its
line numbers. A view of several is as it was when its chunks were `until`, so that no row moves while one looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from flask import Blueprint, abort, jsonify
from werkzeug.wrappers import Response

from jobs.domain.models import Instance
from logs.levels import ERROR, LEVELS
from logs.query import BadQuery, Query, parse
from web import paging, scope
from web.access import viewer
from web.log_find import Looking, looking, possible
from web.log_index import Flags, Ints, View, view
from web.log_source import Row, Source
from web.pages.instances import load

blueprint = Blueprint("log_view", __name__)

MAX_ROWS = 1000
MAX_STREAMS = 8
SEEK_S = 0.8
"""How long one request looks for a line; it then says how far it got, and the page asks on from there."""
MAX_BINS = 400


def source_of(instance: Instance, named: str, until: tuple[int, ...] = ()) -> Source:
    """The lines of `a` or `a+b`, or 404."""
    names = tuple(dict.fromkeys(named.split("+")))
    if len(names) > MAX_STREAMS:
        abort(404, description=f"At most {MAX_STREAMS} streams are shown together.")
    found = view(scope.db(), instance.id, names, until)
    for name, chunks in zip(names, found.chunks, strict=True):
        if not len(chunks):
            abort(404, description=f"The archive holds no stream {name[:32]} of this instance.")
    return Source(scope.db(), scope.context().store, instance.run_id or "none", instance.id, found)


def number(name: str, least: int, most: int, otherwise: int) -> int:
    """A whole number of the query, held within its bounds."""
    text = paging.arg(name, 18)
    return min(max(int(text), least), most) if text.isascii() and text.isdigit() else otherwise


def _asked(instance_id: str, named: str) -> Source:
    texts = [text for text in paging.arg("until", 200).split(",") if text.isascii() and text.isdigit()]
    return source_of(load(instance_id), named, tuple(int(text) for text in texts if len(text) < 12))


def _where(found: View) -> dict[str, object]:
    return {"total": found.total, "until": ",".join(map(str, found.until)), "open": found.open_end}


@blueprint.get("/archive/<instance_id>/<streams>/rows")
@viewer
def rows(instance_id: str, streams: str) -> Response:
    """`count` rows from `row` on, or from the time `t` on. Lines that never came have no row after their mark."""
    source = _asked(instance_id, streams)
    at_ms = number("t", 0, 1 << 53, 0)
    first = source.view.first_row_from(at_ms) if at_ms else number("row", 1, 1 << 53, 1)
    found = source.rows(first, number("count", 1, MAX_ROWS, 250))
    return jsonify({"row": first, "rows": [row.to_json() for row in found], **_where(source.view)})


@blueprint.get("/archive/<instance_id>/<streams>/seek")
@viewer
def seek(instance_id: str, streams: str) -> Response:
    """The nearest error after (`back=1`: before) `row`, or the nearest line that holds what `q` asks for.

    `found` is that row or null; `looked`: go on from there where the time was not enough, 0: there is none.
    """
    source = _asked(instance_id, streams)
    text = paging.arg("q", 400)
    narrowed: Looking = _all
    wanted, chunks = _errors(source.view)
    if text:
        try:
            query = parse(text, regex=paging.arg("regex", 4) == "on")
        except BadQuery as error:
            return jsonify({"wrong": str(error)})
        wanted, chunks = _holding(query), possible(scope.db(), instance_id, source.view, query)
        narrowed = looking(source, query)
    until_s = time.monotonic() + SEEK_S
    found, looked = source.seek(
        number("row", 0, 1 << 53, 0),
        back=paging.arg("back", 2) == "1",
        chunks=chunks,
        wanted=wanted,
        narrowed=narrowed,
        more=lambda: time.monotonic() < until_s,
    )
    return jsonify({"found": found.row if found else None, "looked": looked})


def _errors(found: View) -> tuple[Callable[[Row], bool], Flags]:
    grave = LEVELS.index(ERROR)
    return (lambda row: row.level == grave), found.errors != 0


def _all(places: Ints) -> Ints:
    return places


def _holding(query: Query) -> Callable[[Row], bool]:
    return lambda row: query.matches(row.text.encode("utf-8", "replace"))


@blueprint.get("/archive/<instance_id>/<streams>/density")
@viewer
def density(instance_id: str, streams: str) -> Response:
    """How many lines, warnings and errors there are in each of `bins` equal times from `from` to `to` (ms)."""
    found = _asked(instance_id, streams).view
    bins = number("bins", 1, MAX_BINS, 120)
    begin, end = int(found.t_ms.min()), int(found.t_ms.max())
    begin, end = number("from", begin, end, begin), number("to", begin, end, end)
    edges = np.linspace(begin, max(end, begin + bins), bins + 1)
    counted = [
        np.histogram(found.t_ms, edges, weights=np.maximum(values, 0))[0].astype(int).tolist()
        for values in (found.lines, found.warnings, found.errors)
    ]
    firsts = [found.first_row_from(int(np.ceil(edge))) for edge in edges[:-1]]
    bars = [list(bar) for bar in zip(firsts, *counted, strict=True)]
    return jsonify({"from": begin, "to": int(edges[-1]), "bars": bars})
