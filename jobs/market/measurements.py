"""Writing down what a machine did, for forecasts: its rate, and what was paid for before the first proof."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from jobs.domain.market_models import Machine, Measurement, Offer
from jobs.domain.models import Event, Input, Instance, Run
from jobs.domain.states import BENCHMARKING, FETCHING, LOADING, READY
from jobs.market.ranking.work import work_of

ADVERTISED = ("tflops", "compute_capability", "inet_down_mbps", "reliability", "pcie_gbps")


def keep(session: Session, instance: Instance, run: Run, result: dict[str, Any], now_ms: int) -> None:
    """The measurement of this rental, in the caller's transaction; a later round of it replaces an earlier one.

    Nothing is kept where no proof was valid, or where the machine is not known.
    """
    machine = session.get(Machine, (instance.provider, instance.machine_id))
    if machine is None or not result["verified"]:
        return
    machine.proofs_per_hour, machine.measured_ms = result["proofs_per_hour"], now_ms
    row = session.scalar(select(Measurement).where(Measurement.instance_id == instance.id))
    if row is None:
        row = Measurement(provider=instance.provider, machine_id=instance.machine_id, instance_id=instance.id)
    offer = session.get(Offer, (instance.provider, instance.offer_id))
    key = session.get(Input, run.zkey_id) if run.zkey_id else None
    _describe(row, instance, offer)
    if key is not None:
        row.specs = {**row.specs, "key_bytes": key.size_bytes}
    row.host_id, row.work, row.run_id = instance.host_id, work_of(run, key), run.id
    row.proofs_per_hour, row.proofs = result["proofs_per_hour"], result["verified"]
    row.low, row.high = result["proofs_per_hour_low"], result["proofs_per_hour_high"]
    row.boot_s, row.params_s = _stage_times(session, instance)
    row.dollars_per_hour, row.at_ms = instance.dollars_per_hour, now_ms
    session.add(row)


def _describe(row: Measurement, instance: Instance, offer: Offer | None) -> None:
    """The machine as it was offered; by its own word where the offer is forgotten."""
    said = instance.facts or {}
    if offer is None:
        row.gpu_model, row.num_gpus = next(iter(instance.gpu_names), ""), len(instance.gpu_names)
        row.cpu_model, row.cpu_cores = str(said.get("cpu_model", "")), int(said.get("cpu_cores") or 0)
        row.ram_bytes, row.specs = int(said.get("ram_bytes") or 0), {}
        return
    row.gpu_model, row.num_gpus = offer.gpu_model, offer.num_gpus
    row.cpu_model, row.cpu_cores, row.ram_bytes = offer.cpu_model, offer.cpu_cores, offer.ram_bytes
    told = {name: offer.facts[name] for name in ADVERTISED if offer.facts.get(name) is not None}
    row.specs = {"gpu_ram_bytes": offer.gpu_ram_bytes, **told}


def _stage_times(session: Session, instance: Instance) -> tuple[float | None, float | None]:
    """Seconds from the rental to the registration, and from there until its parameters were there."""
    moves = (Event.instance_id == instance.id, Event.kind == "instance.state")
    came = {e.new: e.at_ms for e in session.scalars(select(Event).where(*moves).order_by(Event.id.desc()))}
    rented, registered = came.get(LOADING), came.get(FETCHING)
    ready = came.get(BENCHMARKING) or came.get(READY)
    boot_s = (registered - rented) / 1000 if rented is not None and registered is not None else None
    params_s = (ready - registered) / 1000 if ready is not None and registered is not None else None
    return boot_s, params_s
