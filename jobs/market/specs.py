"""Machines that are not what was advertised: written down with the instance, and marked (`jobs.domain.delivered`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from jobs.domain.delivered import GRAVE, Difference, compare
from jobs.domain.market_models import Machine, Offer
from jobs.domain.models import Event, Instance
from jobs.domain.work import record
from jobs.market import reputation
from jobs.market.prices import GB

OTHER_HARDWARE = "instance.other_hardware"
UNDER_LOAD = "_under_load"
"""How the names of figures end that only a machine at work can tell."""


def check(session: Session, now_ms: int, instance: Instance, found: Mapping[str, Any]) -> list[Difference]:
    """Compare at registration, in the caller's transaction; a machine that lacks something is marked `wrong_specs`.

    The rental goes on: what the machine does is measured, whatever it calls itself.
    """
    offer = _offer(session, instance)
    machine = session.get(Machine, (instance.provider, instance.machine_id))
    if offer is None or machine is None:
        return []
    lacking = compare(advertised(offer, instance.disk_gb), found)
    _note(session, now_ms, instance, lacking)
    if grave := [difference.text for difference in lacking if difference.what in GRAVE]:
        seen_in = {"run_id": instance.run_id, "instance_id": instance.id}
        what = "; ".join(grave)[:1000]
        reputation.mark(
            session, now_ms, instance.provider, instance.machine_id, reputation.WRONG_SPECS, what, "agent", **seen_in
        )
    return lacking


def check_under_load(session: Session, now_ms: int, instance: Instance, telemetry: Mapping[str, Any]) -> None:
    """Compare what a lease tells of links that are at work, where it tells something new."""
    new = {name: value for name, value in telemetry.items() if name.endswith(UNDER_LOAD)}
    if not new or new.items() <= (instance.telemetry or {}).items():
        return
    if (offer := _offer(session, instance)) is not None:
        _note(session, now_ms, instance, compare(advertised(offer, instance.disk_gb), {}, new))


def noted(session: Session, instance_id: str) -> list[str]:
    """All that was written down of an instance, in words."""
    return [difference["text"] for event in _events(session, instance_id) for difference in event.data["differences"]]


def advertised(offer: Offer, disk_gb: int) -> dict[str, Any]:
    """An offer, as `compare` wants it; `disk_gb` is what was rented of its disk."""
    names = ("gpu_model", "num_gpus", "gpu_ram_bytes", "cpu_model", "cpu_cores", "ram_bytes")
    links = {name: offer.facts.get(name) for name in ("pcie_gen", "pcie_lanes")}
    return {**{name: getattr(offer, name) for name in names}, **links, "disk_bytes": disk_gb * GB}


def _offer(session: Session, instance: Instance) -> Offer | None:
    if instance.provider == "local":
        return None
    return session.get(Offer, (instance.provider, instance.offer_id))


def _events(session: Session, instance_id: str) -> Sequence[Event]:
    query = select(Event).where(Event.instance_id == instance_id, Event.kind == OTHER_HARDWARE).order_by(Event.id)
    return session.scalars(query).all()


def _note(session: Session, now_ms: int, instance: Instance, lacking: list[Difference]) -> None:
    """Each difference once: a registration may be sent again, a lease always is."""
    known = set(noted(session, instance.id)) if lacking else set()
    if new := [difference for difference in lacking if difference.text not in known]:
        record(
            session,
            now_ms,
            "agent",
            OTHER_HARDWARE,
            "; ".join(difference.text for difference in new)[:1000],
            run_id=instance.run_id,
            instance_id=instance.id,
            data={"differences": [asdict(difference) for difference in new]},
        )
