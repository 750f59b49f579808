"""The form of a run, as the pages of offers and of a new run share it: its defaults, and the request that it means."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, defer
from werkzeug.datastructures import MultiDict

from jobs.domain.models import Input
from jobs.domain.runs import CIRCUITS, RunRequest
from jobs.market import provider_names
from web import scope

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
PLAIN = ("kind", "payload", "provider", "bid_dollars_per_hour", *LIMITS)
CHOICES = ("kind", "payload", "provider", "source", "circuit_kind", "circuit_size", "circuit_curve", "zkey_id")
LISTS = ("offer", "witness_ids")
MAX_DEPLOYED = 20
SHOWN_INPUTS = 200


def defaults(given: MultiDict[str, str]) -> MultiDict[str, str]:
    """What an empty form holds: the defaults of `RunRequest`, and what came with the link."""
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
            "provider": provider_names(scope.context().settings)[-1],
            "request_id": secrets.token_hex(16),
        }
    )
    for name in (*CHOICES, *LIMITS, "interruptible", "bid_dollars_per_hour"):
        if value := given.get(name, "").strip()[:100]:
            form[name] = value
    for name in LISTS:
        form.setlist(name, given.getlist(name))
    return form


def read(form: MultiDict[str, str]) -> dict[str, Any]:
    """The form as `RunRequest` has it: what is empty is left out."""
    data: dict[str, Any] = {name: form[name].strip() for name in PLAIN if form.get(name, "").strip()}
    data["interruptible"] = form.get("interruptible") == "yes"
    if form.get("source") == "own":
        data["zkey_id"] = form.get("zkey_id") or None
        data["witness_ids"] = form.getlist("witness_ids")
    else:
        data["circuit"] = "/".join(form.get(f"circuit_{name}", "").strip() for name in ("kind", "size", "curve"))
    return data


def offers(form: MultiDict[str, str]) -> list[str | None]:
    """The offers to deploy on, one run each; [None]: whichever ranks first when its turn comes."""
    chosen = list(dict.fromkeys(value for value in form.getlist("offer") if value))[:MAX_DEPLOYED]
    return list(chosen) or [None]


def inputs(session: Session, kind: str) -> Sequence[Input]:
    """The newest keys (zkey) or witnesses (wtns) that were uploaded and are ready."""
    return session.scalars(
        select(Input)
        .options(defer(Input.vkey))
        .where(Input.state == "ready", Input.circuit.is_(None), Input.kind == kind)
        .order_by(Input.created_ms.desc())
        .limit(SHOWN_INPUTS)
    ).all()
