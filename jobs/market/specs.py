"""Is it the machine that was advertised? What its agent finds is set against the offer, with a margin.

Usable memory is less than a data sheet's (drivers, ECC, what the kernel keeps) and cores may be shared out by quota, so
a tenth is forgiven. What an agent finds is its host's word too: a match proves nothing, a mismatch is worth knowing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from jobs.domain.market_models import Machine, Offer
from jobs.domain.models import Instance
from jobs.market import reputation
from jobs.market.prices import GB
from jobs.market.ranking.likeness import plain

MARGIN = 0.10
"""Part of what was advertised that may be missing."""


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0.0


def differences(offer: Offer, found: Mapping[str, Any], disk_gb: int) -> list[str]:
    """What the machine lacks of what `offer` advertised, in words; [] where it is what it should be.

    `found` is `gpu.agent.facts.machine_facts`; what either side does not tell is not compared. More than was advertised
    is no difference. `disk_gb` is what was rented.
    """
    lacking = []
    if offer.num_gpus:
        lacking += _gpus(offer, found.get("gpus"))
    cores = min((n for n in (_number(found.get("cpu_cores")), _number(found.get("cpu_quota"))) if n), default=0.0)
    sizes = (
        ("CPU cores", float(offer.cpu_cores or 0), cores, 1.0, ""),
        ("memory", float(offer.ram_bytes or 0), _number(found.get("ram_bytes")), float(GB), " GB"),
        ("disk", float(disk_gb * GB), _number(found.get("disk_free_bytes")), float(GB), " GB"),
    )
    for what, advertised, has, unit, name in sizes:
        if has and has < advertised * (1 - MARGIN):
            lacking.append(f"{what}: {advertised / unit:.4g}{name} advertised, {has / unit:.4g}{name} found")
    return lacking


def _gpus(offer: Offer, cards: Any) -> list[str]:
    """The GPUs by number, model and memory. A machine that shows none at all may only lack nvidia-smi, but then nobody
    can use its GPU."""
    shown = [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else None
    if shown is None:
        return []
    if len(shown) < offer.num_gpus:
        return [f"GPUs: {offer.num_gpus} advertised, {len(shown)} found"]
    asked = plain(offer.gpu_model)
    for card in shown:
        name = plain(str(card.get("name", "")))
        # Marketplaces leave out what the driver adds ("A100 SXM4 80GB", "RTX 4000 Ada Generation").
        if name and not set(asked.split()) <= set(name.split()) and not set(name.split()) <= set(asked.split()):
            return [f"GPU: {offer.gpu_model} advertised, {card.get('name')} found"]
        has = _number(card.get("ram_bytes"))
        if has and has < (offer.gpu_ram_bytes or 0) * (1 - MARGIN):
            return [f"GPU memory: {offer.gpu_ram_bytes / GB:.4g} GB advertised, {has / GB:.4g} GB found"]
    return []


def check(session: Session, now_ms: int, instance: Instance, found: Mapping[str, Any]) -> list[str]:
    """Compare at registration, in the caller's transaction; a machine that lacks something is marked `wrong_specs`.

    The rental goes on: what the machine does is measured, whatever it calls itself. What it lacks, in words.
    """
    offer = session.get(Offer, (instance.provider, instance.offer_id))
    machine = session.get(Machine, (instance.provider, instance.machine_id))
    if offer is None or machine is None or instance.provider == "local":
        return []
    lacking = differences(offer, found, instance.disk_gb)
    if lacking:
        seen_in = {"run_id": instance.run_id, "instance_id": instance.id}
        what = "; ".join(lacking)[:1000]
        reputation.mark(
            session, now_ms, instance.provider, instance.machine_id, reputation.WRONG_SPECS, what, "agent", **seen_in
        )
    return lacking
