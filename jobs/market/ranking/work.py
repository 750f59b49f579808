"""What an offer is ranked for: the proofs that a run wants, what they need of a machine, and what the run allows."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from jobs.domain.market_models import Offer
from jobs.domain.models import Input, Run
from jobs.market.prices import GB, Traffic, tail_s
from jobs.settings import Settings

MIB, GIB = 1 << 20, 1 << 30
SCALAR_BYTES = 32
BYTES_OF_RAM_A_CONSTRAINT = 600
"""205 MiB at 2^17 (BLS12-381), 550 MiB at 2^20 (BN254): docs/performance.md. Keys are mapped and may be read anew."""
FIXED_RAM_BYTES, FIXED_VRAM_BYTES = 512 * MIB, 512 * MIB
FIXED_DISK_BYTES = 4 * GB
"""Logs, compiled kernels and what the image writes, besides the key and the witnesses."""


def work_of(run: Run, key: Input | None) -> str:
    """What is proved, by a name under which measurements can be compared: payload/curve/domain size."""
    facts = key.facts if key is not None else {}
    return f"{run.payload}/{facts.get('curve', 'unknown')}/{facts.get('domain_size', 0)}"


@dataclass(slots=True)
class Advertised:
    """An offer's columns, read once each: a mapped row takes twenty times as long at every look, and ten thousand are
    ranked."""

    provider: str
    offer_id: str
    machine_id: str
    host_id: str
    gpu_model: str
    num_gpus: int
    gpu_ram_bytes: int
    cpu_model: str
    cpu_cores: int
    ram_bytes: int
    disk_bytes: int
    dollars_per_hour: float
    facts: dict[str, Any]


COLUMNS = tuple(Advertised.__slots__)
_READ = attrgetter(*COLUMNS)


def advertised(offer: Offer) -> Advertised:
    row = vars(offer)
    try:
        return Advertised(*[row[name] for name in COLUMNS])
    except KeyError:  # a row that must be loaded first
        return Advertised(*_READ(offer))


@dataclass(frozen=True)
class Work:
    """What one run wants, by the run's own names. `proofs` in one rental; `min_proofs_per_hour` None: any rate will do.

    `duration_s` is what the longest rental takes, its tail included. `disk_gb` is what would be rented.
    """

    name: str
    proofs: int = 12
    min_proofs_per_hour: float | None = None
    max_dollars_per_hour: float | None = None
    interruptible: bool = False
    bid_dollars_per_hour: float | None = None
    duration_s: float = 0.0
    disk_gb: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    key_bytes: int = 0
    needs_disk_bytes: int = 0
    needs_ram_bytes: int = 0
    needs_vram_bytes: int = 0
    needs_cuda: float = 0.0
    needs_compute_capability: float = 0.0
    named: bool = False
    """An operator chose the offer: marks and doubts are told, but stop nothing."""


def work_for(settings: Settings, run: Run, key: Input | None, traffic: Traffic) -> Work:
    """The work of `run`. What the prover needs is known of our own payload only; another states nothing."""
    ours = run.payload == "groth16" and key is not None
    facts = key.facts if ours and key is not None else {}
    domain, n_vars = int(facts.get("domain_size", 0)), int(facts.get("n_vars", 0))
    vectors = SCALAR_BYTES * (n_vars + 5 * domain)
    return Work(
        name=work_of(run, key),
        proofs=run.proofs,
        min_proofs_per_hour=run.min_proofs_per_hour or None,
        max_dollars_per_hour=run.max_dollars_per_hour,
        interruptible=bool(run.interruptible),
        bid_dollars_per_hour=run.bid_dollars_per_hour,
        duration_s=run.max_duration_s + tail_s(settings, run.lease_s),
        disk_gb=settings.rent_disk_gb,
        traffic=traffic,
        key_bytes=key.size_bytes if key is not None else 0,
        needs_disk_bytes=FIXED_DISK_BYTES + traffic.down_bytes if ours else 0,
        needs_ram_bytes=FIXED_RAM_BYTES + BYTES_OF_RAM_A_CONSTRAINT * domain if ours else 0,
        needs_vram_bytes=FIXED_VRAM_BYTES + vectors if ours else 0,
        needs_cuda=settings.rent_min_cuda if ours else 0.0,
        needs_compute_capability=settings.rent_min_compute_capability if ours else 0.0,
        named=run.offer_id is not None,
    )
