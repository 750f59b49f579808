"""Why an offer is not for a run, whatever it would cost: what it lacks, what it is remembered for, who has it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from jobs.domain.market_models import Mark
from jobs.market import reputation
from jobs.market.prices import GB
from jobs.market.ranking.knowledge import Knowledge
from jobs.market.ranking.work import Advertised, Work

USABLE = 0.92
"""Of what is advertised, this much can be used: a 24 GB card has 22.5 to 24.6 (drivers, ECC)."""
COOLING_MS = 6 * 3_600_000
"""A machine that came to nothing is left alone that long: what ails it (a pull, a full disk) outlasts a retry."""


def _day(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).strftime("%Y-%m-%d")


def _gb(n_bytes: float) -> str:
    return f"{n_bytes / GB:,.3g} GB"


def lacks(work: Work, offer: Advertised) -> str:
    """What the machine is too small, too old or too short for; '' where nothing that it tells speaks against it."""
    facts, here = offer.facts, offer.provider == "local"
    if work.needs_disk_bytes > work.disk_gb * GB and not here:
        return (
            f"{work.disk_gb} GB of disk would be rented, {_gb(work.needs_disk_bytes)} are needed; "
            "raise PROVEFLEET_RENT_DISK_GB"
        )
    disk = work.needs_disk_bytes if here else max(work.disk_gb * GB, work.needs_disk_bytes)
    if offer.disk_bytes and offer.disk_bytes < disk:
        return f"has {_gb(offer.disk_bytes)} of disk, {_gb(disk)} are wanted"
    if offer.ram_bytes and offer.ram_bytes * USABLE < work.needs_ram_bytes:
        return f"has {_gb(offer.ram_bytes)} of memory, the key needs {_gb(work.needs_ram_bytes)}"
    if offer.num_gpus and offer.gpu_ram_bytes and offer.gpu_ram_bytes * USABLE < work.needs_vram_bytes:
        return f"its GPU has {_gb(offer.gpu_ram_bytes)}, the key needs {_gb(work.needs_vram_bytes)}"
    if offer.num_gpus and (old := _too_old(work, facts)):
        return old
    left_s = facts.get("duration_s")
    if isinstance(left_s, int | float) and left_s < work.duration_s:
        return f"can be rented for {left_s / 3600:.1f} h more, the run may take {work.duration_s / 3600:.1f} h"
    if facts.get("verification") in ("unverified", "deverified"):
        return f"is {facts['verification']} by its marketplace"
    return ""


def _too_old(work: Work, facts: dict[str, Any]) -> str:
    cuda, capability = facts.get("cuda"), facts.get("compute_capability")
    if isinstance(cuda, int | float) and cuda < work.needs_cuda - 1e-6:
        return f"its driver is for CUDA {cuda:.1f}, the kernels need {work.needs_cuda:.1f}"
    if isinstance(capability, int | float) and capability < work.needs_compute_capability - 1e-6:
        return f"its GPU has compute capability {capability:.1f}, the kernels need {work.needs_compute_capability:.1f}"
    return ""


def _marked(mark: Mark) -> str:
    where = f", run {mark.run_id}" if mark.run_id else f", by {mark.by}"
    return f"machine is marked {mark.kind.replace('_', ' ')} since {_day(mark.at_ms)}{where}: {mark.reason}"


def refusals(knowledge: Knowledge, work: Work, now_ms: int) -> Callable[[Advertised], tuple[str, bool]]:
    """A function that says why an offer is skipped ('' where it is not), and whether that passes by itself.

    A job's own `slow` marks stop nothing: the forecast knows the rate that they stand for, for this work or another.
    """
    cooling: dict[tuple[str, str], int] = {}
    for rental in knowledge.rentals:
        if rental.failed and rental.at_ms > now_ms - COOLING_MS:
            cooling[rental.machine] = max(rental.at_ms, cooling.get(rental.machine, 0))

    def refusal(offer: Advertised) -> tuple[str, bool]:
        machine = (offer.provider, offer.machine_id)
        busy = knowledge.busy.get(machine) or knowledge.busy_offers.get((offer.provider, offer.offer_id))
        if busy:
            return f"works for us now: instance {busy}", True
        if why := lacks(work, offer):
            return why, False
        if work.named:
            return "", False
        if machine in knowledge.tried:
            return "was tried by this run already, and came to nothing", False
        for mark in knowledge.marks.get(machine, ()):
            if mark.kind != reputation.SLOW or mark.by not in reputation.JOBS:
                return _marked(mark), False
        if machine in cooling and offer.provider != "local":
            minutes = (cooling[machine] + COOLING_MS - now_ms) / 60_000
            return f"came to nothing at its last rental; left alone for {minutes:.0f} min more", True
        return "", False

    return refusal
