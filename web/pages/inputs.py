"""Proving keys and witnesses: what is there, and how more come in."""

from __future__ import annotations

import logging

from flask import Blueprint, abort, flash, jsonify, redirect, render_template, request, url_for
from sqlalchemy import func, select
from sqlalchemy.orm import defer
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.wrappers import Response

from jobs.domain.inputs import InputRefused, InputTooLarge, store_upload
from jobs.domain.models import Input
from logs.ansi import visible
from logs.errors import StoreError
from web import format as f
from web import paging, scope
from web.access import operator, viewer
from web.security import csrf
from web.uploads import BadUpload, Multipart, check_token

blueprint = Blueprint("inputs", __name__)
log = logging.getLogger("provefleet.site")

KINDS = {"zkey": "Proving key (.zkey)", "wtns": "Witness (.wtns)"}
COLUMNS = {"created": Input.created_ms, "name": Input.name, "size": Input.size_bytes}
# What a form wraps around a file: boundaries, headers, the token.
FORM_BYTES = 64 * 1024


@blueprint.get("/inputs")
@viewer
def page() -> str:
    order = paging.order(COLUMNS, "-created")
    query = select(Input).options(defer(Input.vkey))
    if (kind := paging.arg("kind")) in KINDS:
        query = query.where(Input.kind == kind)
    if name := paging.arg("name"):
        query = query.where(Input.name.icontains(name, autoescape=True))
    total = scope.db().scalar(select(func.count()).select_from(query.subquery()))
    rows = (
        scope.db()
        .scalars(query.order_by(order.apply(COLUMNS), Input.id).offset(paging.skip()).limit(paging.PER_PAGE + 1))
        .all()
    )
    return render_template(
        "inputs.html",
        inputs=paging.page(rows, total),
        order=order,
        kinds=KINDS,
        kind=kind,
        name=name,
        limit=scope.context().settings.max_upload_bytes,
    )


def _check_size(kind: str) -> None:
    """Refuse by the announced length, before a byte of the file is read."""
    if kind not in KINDS:
        abort(404)
    limit = scope.context().settings.max_upload_bytes
    request.max_content_length = limit + FORM_BYTES
    if request.content_length is not None and request.content_length > limit + FORM_BYTES:
        raise RequestEntityTooLarge(
            f"The upload has {request.content_length:,} bytes, the limit is {limit:,} (PROVEFLEET_MAX_UPLOAD_BYTES)."
        )


@blueprint.put("/inputs/<kind>")
@csrf.exempt  # checked below, from the header: the body is a file and is not to be parsed
@operator
def upload(kind: str) -> tuple[Response, int]:
    """A raw body, named by `?name=`. Answers JSON for the page's script."""
    check_token(request.headers.get("X-CSRFToken", ""))
    try:
        _check_size(kind)
        row = store_upload(scope.context(), kind, request.args.get("name", ""), request.stream, scope.actor())
    except (InputTooLarge, RequestEntityTooLarge) as error:
        return _problem(413, getattr(error, "description", None) or str(error))
    except InputRefused as error:
        return _problem(400, str(error))
    except StoreError as error:
        log.error("an upload failed: %s", error)
        return _problem(503, "The archive does not answer, so nothing was stored. Try again in a moment.")
    return jsonify(id=row.id, name=visible(row.name), kind=row.kind, size=f.size(row.size_bytes), facts=row.facts), 201


def _problem(status: int, text: str) -> tuple[Response, int]:
    return jsonify(error=visible(text)), status


@blueprint.post("/inputs/<kind>")
@csrf.exempt  # checked below, before the first file is read
@operator
def upload_form(kind: str) -> Response:
    """The form of browsers without scripts: one file or several."""
    _check_size(kind)
    count = 0
    try:
        parts = Multipart(request)
        for part in parts.files():
            check_token(parts.fields.get("csrf_token", ""))
            row = store_upload(scope.context(), kind, part.filename, part, scope.actor())  # type: ignore[arg-type]
            count += 1
            flash(f"{row.name} is stored ({f.size(row.size_bytes)}).")
    except InputTooLarge as error:
        raise RequestEntityTooLarge(str(error)) from error
    except InputRefused as error:
        flash(f"Refused: {error}")
        count += 1
    except BadUpload as error:
        abort(400, description=str(error))
    if not count:
        check_token(parts.fields.get("csrf_token", ""))
        flash("No file was chosen.")
    return redirect(url_for("inputs.page", kind=kind))
