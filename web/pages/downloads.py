"""Bytes from the archive, streamed as they come from S3. What a machine made is never shown as a page of ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain

from flask import Blueprint, Response, abort
from pydantic import SecretStr
from sqlalchemy import select

from jobs import payloads
from jobs.domain import archive
from jobs.domain.models import Artifact, Controller, Instance, Proof, Run
from jobs.receipts import receipt as receipts
from jobs.story.capsule import capsule as make_capsule
from logs.errors import NoSuchObject
from logs.wire import bundle_key
from web import scope
from web.access import viewer
from web.pages.archive import reader_of
from web.pages.instances import load
from web.pages.runs import load as load_run

blueprint = Blueprint("downloads", __name__)


def attachment(
    body: Iterable[bytes], name: str, length: int | None = None, kind: str = "application/octet-stream"
) -> Response:
    """A download called `name` (ours, or cleaned). The first piece is fetched here, so that a store that is
    away is a calm page and not a broken file."""
    pieces: Iterator[bytes] = iter(body)
    first = next(pieces, b"")
    response = Response(chain([first], pieces), mimetype=kind)
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)[-120:]
    response.headers["Content-Disposition"] = f'attachment; filename="{safe}"'
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    if length is not None:
        response.headers["Content-Length"] = str(length)
    return response


def _stem(instance: Instance) -> str:
    return f"{(instance.run_id or 'none')[:8]}-{instance.id[:8]}"


def _refuse_expired(instance: Instance) -> None:
    """404 with the day, where the bytes of an old run were deleted."""
    if gone := archive.expired(scope.db(), [instance.id]).get(instance.id):
        abort(404, description=f"It {gone}. What is cited elsewhere is kept, as are the hashes of everything.")


@blueprint.get("/archive/<instance_id>/<stream>/raw")
@viewer
def raw(instance_id: str, stream: str) -> Response:
    """All bytes of a stream that are there."""
    instance = load(instance_id)
    return attachment(
        reader_of(instance, stream).raw(), f"{_stem(instance)}-{stream}.log", kind="text/plain; charset=utf-8"
    )


@blueprint.get("/instances/<instance_id>/evidence.zip")
@viewer
def evidence(instance_id: str) -> Response:
    """The sealed bundle."""
    instance = load(instance_id)
    if instance.evidence_sha256 is None:
        abort(404, description="There is no sealed bundle (yet): the evidence is sealed when the work has ended.")
    _refuse_expired(instance)
    opened = scope.context().store.open_range(bundle_key(instance.run_id or "none", instance.id))
    return attachment(opened, f"evidence-{_stem(instance)}.zip", opened.bytes, "application/zip")


@blueprint.get("/runs/<run_id>/receipts/<int:proof_round>/<int:index>")
@viewer
def receipt(run_id: str, proof_round: int, index: int) -> Response:
    """A signed receipt of one proof that holds."""
    session = scope.db()
    wanted = (Proof.run_id == run_id, Proof.round == proof_round, Proof.index == index, Proof.verdict == "valid")
    proof = session.scalar(select(Proof).where(*wanted))
    run = session.get(Run, run_id)
    instance = session.get(Instance, proof.instance_id) if proof and proof.instance_id else None
    if proof is None or run is None or instance is None:
        abort(404, description="There is a receipt for each proof that was found valid; this is none of them.")
    controller = session.scalar(select(Controller.id)) or ""
    body = receipts.body_of(controller, run, instance, proof)
    told = json.dumps(
        receipts.signed(body, receipts.signing_key(scope.context().settings.state_dir)), indent=1
    ).encode()
    return attachment([told], f"receipt-{run_id[:8]}-{proof_round}-{index}.json", len(told), "application/json")


@blueprint.get("/runs/<run_id>/capsule.zip")
@viewer
def capsule(run_id: str) -> Response:
    """What one needs to run it again elsewhere: the newest machine's image, commands and facts, inputs by hash."""
    run = load_run(run_id)
    instance = max(run.instances, key=lambda i: i.created_ms, default=None)
    if instance is None:
        abort(404, description="No machine was chosen for this run, so there is nothing to run again elsewhere.")
    mine = (Proof.run_id == run_id, Proof.round == instance.round)
    proofs = scope.db().scalars(select(Proof).where(*mine).order_by(Proof.index)).all()
    settings = scope.context().settings
    values = (getattr(settings, name) for name in type(settings).model_fields)
    secrets = [value.get_secret_value() for value in values if isinstance(value, SecretStr)]
    data = make_capsule(run, instance, proofs, payloads.load(run.payload), secrets)
    return attachment([data], f"capsule-{_stem(instance)}.zip", len(data), "application/zip")


@blueprint.get("/instances/<instance_id>/artifacts/<path:name>")
@viewer
def artifact(instance_id: str, name: str) -> Response:
    instance = load(instance_id)
    row = scope.db().scalar(select(Artifact).where(Artifact.instance_id == instance.id, Artifact.name == name))
    if row is None:
        abort(404, description="This instance has no such artifact.")
    try:
        opened = scope.context().store.open_range(row.object_key)
    except NoSuchObject:
        _refuse_expired(instance)
        raise
    return attachment(opened, f"{_stem(instance)}-{name.replace('/', '-')}", opened.bytes)
