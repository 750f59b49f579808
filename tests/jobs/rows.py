"""Rows as they would be in the database at some moment, made without going the way there."""

from __future__ import annotations

from typing import Any

from jobs.context import Context
from jobs.domain.market_models import Offer
from jobs.domain.models import Instance, Run

NOW = 1_780_000_000_000


def new_run(context: Context, **fields: Any) -> Run:
    values: dict[str, Any] = {
        "id": context.new_id(),
        "kind": "benchmark",
        "payload": "groth16",
        "state": "active",
        "provider": "local",
        "max_duration_s": 3600,
        "proofs": 2,
        "concurrency": 1,
        "partition_workers": 1,
        "lease_s": 900,
        "inputs": {},
        "created_by": "test",
        "created_ms": NOW,
    }
    return _kept(context, Run(**{**values, **fields}))


def new_instance(context: Context, **fields: Any) -> Instance:
    instance_id = context.new_id()
    values: dict[str, Any] = {
        "id": instance_id,
        "label": f"provefleet:test:{instance_id}",
        "provider": "local",
        "offer_id": f"o-{instance_id}",
        "state": "loading",
        "state_ms": NOW,
        "stage": "loading",
        "stage_ms": NOW,
        "stage_deadline_ms": NOW + 600_000,
        "moved_ms": NOW,
        "dollars_per_hour": 0.36,
        "reserved_dollars": 1.0,
        "created_ms": NOW,
    }
    return _kept(context, Instance(**{**values, **fields}))


def new_offer(context: Context, offer_id: str, dollars_per_hour: float = 0.36, machine_id: str = "m") -> Offer:
    offer = Offer(
        provider="local",
        offer_id=offer_id,
        machine_id=machine_id,
        dollars_per_hour=dollars_per_hour,
        facts={},
        seen_ms=NOW,
        gone_ms=None,
    )
    return _kept(context, offer)


def _kept(context: Context, row: Any) -> Any:
    with context.sessions() as session:
        session.add(row)
        session.commit()
    return row
