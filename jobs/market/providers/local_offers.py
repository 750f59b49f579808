"""This machine cut into offers: one a GPU, and its cores in sets. Described as it is, never better.

Offers may overlap (a GPU comes with a share of the cores): an offer is to be had while neither its GPU nor
any of its cores is rented.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from gpu.agent import facts
from gpu.agent.procfs import read_text
from jobs.market.providers.base import OfferFacts
from jobs.market.providers.local_launcher import write_durably
from jobs.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gpu:
    index: int
    name: str
    uuid: str
    ram_bytes: int
    driver: str


@dataclass(frozen=True)
class LocalOffer:
    """An offer and what it takes from the machine: core numbers, and perhaps one GPU."""

    offer: OfferFacts
    cores: frozenset[int]
    gpu_uuid: str = ""

    def overlaps(self, cores: set[int], gpu_uuids: set[str]) -> bool:
        return bool(self.cores & cores) or self.gpu_uuid in gpu_uuids


def machine_id(folder: Path) -> str:
    """Names this machine for good without telling its /etc/machine-id; a file in `folder` replaces a missing one."""
    raw = read_text("/etc/machine-id")
    if not raw:
        stand_in = folder / ".machine-id"
        raw = read_text(stand_in)
        if not raw:
            raw = secrets.token_hex(16)
            write_durably(stand_in, raw)
    return hashlib.sha256(b"provefleet machine " + raw.encode()).hexdigest()[:32]


def nvml_gpus() -> list[Gpu]:
    """The GPUs that NVML shows; [] without the library or the driver."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
            found.append(Gpu(index, _text(name), _text(uuid), int(memory.total), driver))
        return found
    except pynvml.NVMLError as error:
        _log.warning("NVML failed (%s): GPUs of this machine are not offered", error)
        return []
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def ranges(cores: list[int]) -> str:
    """[0, 1, 2, 5] as "0-2.5"; a long list is cut to its hash, so that it fits an offer id."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    text = ".".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
    return text if len(text) <= 40 else hashlib.sha256(text.encode()).hexdigest()[:16]


def all_offers(settings: Settings, folder: Path) -> list[LocalOffer]:
    """Every offer of this machine, rented ones included; `folder` is where instances will live."""
    cores = facts.allowed_cores()
    cards = nvml_gpus()
    base = OfferFacts(
        offer_id="",
        machine_id=machine_id(folder),
        dollars_per_hour=settings.local_dollars_per_hour,
        cpu_model=facts.cpu_model(),
        ram_bytes=facts.ram_bytes(),
        disk_bytes=facts.disk_free_bytes(folder),
        location="this machine",
        facts={
            "trusted": True,
            "isolation": "none: the payload runs as the operator's own user",
            "cpu_quota": facts.cpu_quota(),
            "cores_of_machine": len(cores),
            "gpu_driver": cards[0].driver if cards else "",
        },
    )
    return divide(base, cores, cards, settings.local_cores_per_offer or len(cores))


def divide(base: OfferFacts, cores: list[int], cards: list[Gpu], size: int) -> list[LocalOffer]:
    """One offer a GPU, with its equal share of the cores, and one for each `size` cores."""
    core_sets = [cores[i : i + size] for i in range(0, len(cores), size)]
    share = max(1, len(cores) // len(cards)) if cards else 0
    shares = cores * 2  # more GPUs than cores share cores
    return [
        *(_gpu_offer(base, card, shares[i * share % len(cores) :][:share]) for i, card in enumerate(cards)),
        *(_core_offer(base, core_set) for core_set in core_sets),
    ]


def _gpu_offer(base: OfferFacts, card: Gpu, cores: list[int]) -> LocalOffer:
    offer = replace(
        base,
        offer_id=f"gpu-{card.index}-{hashlib.sha256(card.uuid.encode()).hexdigest()[:12]}",
        gpu_model=card.name,
        num_gpus=1,
        gpu_ram_bytes=card.ram_bytes,
        cpu_cores=len(cores),
    )
    return LocalOffer(offer, frozenset(cores), card.uuid)


def _core_offer(base: OfferFacts, cores: list[int]) -> LocalOffer:
    return LocalOffer(replace(base, offer_id=f"cpu-{ranges(cores)}", cpu_cores=len(cores)), frozenset(cores))
