"""Is it the machine that was advertised? What its agent finds, and measures under load, set against the offer.

Usable memory is less than a data sheet's (drivers, ECC, what the kernel keeps) and cores may be shared out by quota, so
a tenth is forgiven. What an agent finds is its host's word too: a match proves nothing, a mismatch is worth knowing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.market.prices import GB
from jobs.market.ranking.likeness import plain

MARGIN = 0.10
"""Part of what was advertised that may be missing."""
GRAVE = ("gpus", "gpu", "gpu_memory", "cpu_cores", "memory", "disk")
"""What makes it another machine than was let. Another CPU or a narrow link may be slower; its rate says whether."""


@dataclass(frozen=True)
class Difference:
    """`what`: gpus, gpu, gpu_memory, cpu_cores, memory, disk, cpu or pcie. Bytes for sizes; `text` is for people."""

    what: str
    advertised: Any
    measured: Any
    text: str


def compare(
    offer: Mapping[str, Any], machine: Mapping[str, Any], telemetry: Mapping[str, Any] | None = None
) -> list[Difference]:
    """What the machine lacks of what was advertised; [] where it is what it should be. More is no difference.

    `offer`: gpu_model, num_gpus, gpu_ram_bytes, cpu_model, cpu_cores, ram_bytes, disk_bytes (as rented), pcie_gen,
    pcie_lanes. `machine`: `gpu.agent.facts.machine_facts`. `telemetry`: that of a lease, for what only load shows.
    What either side does not tell is not compared.
    """
    found = [*_gpus(offer, machine.get("gpus")), *_sizes(offer, machine), *_cpu(offer, machine)]
    return [*found, *_pcie(offer, telemetry or {})]


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0.0


def _gpus(offer: Mapping[str, Any], cards: Any) -> Iterator[Difference]:
    """By number, model and memory. A machine that shows none at all may only lack nvidia-smi, but then nobody can use
    its GPU."""
    shown = [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else None
    asked, wanted = plain(str(offer.get("gpu_model") or "")), int(_number(offer.get("num_gpus")))
    if shown is None or not wanted:
        return
    if len(shown) < wanted:
        yield Difference("gpus", wanted, len(shown), f"GPUs: {wanted} advertised, {len(shown)} found")
        return
    memory = _number(offer.get("gpu_ram_bytes"))
    for card in shown:
        name, has = str(card.get("name", "")), _number(card.get("ram_bytes"))
        if not _alike(asked, plain(name)):
            model = offer["gpu_model"]
            yield Difference("gpu", model, name, f"GPU: {model} advertised, {name} found")
            return
        if has and has < memory * (1 - MARGIN):
            said = f"GPU memory: {memory / GB:.4g} GB advertised, {has / GB:.4g} GB found"
            yield Difference("gpu_memory", memory, has, said)
            return


def _alike(asked: str, found: str) -> bool:
    """Marketplaces leave out what the driver adds ("A100 SXM4 80GB", "RTX 4000 Ada Generation")."""
    one, other = set(asked.split()), set(found.split())
    return one <= other or other <= one


def _sizes(offer: Mapping[str, Any], machine: Mapping[str, Any]) -> Iterator[Difference]:
    cores = min((n for n in (_number(machine.get("cpu_cores")), _number(machine.get("cpu_quota"))) if n), default=0.0)
    sizes = (
        ("cpu_cores", "CPU cores", _number(offer.get("cpu_cores")), cores, 1.0, ""),
        ("memory", "memory", _number(offer.get("ram_bytes")), _number(machine.get("ram_bytes")), float(GB), " GB"),
        ("disk", "disk", _number(offer.get("disk_bytes")), _number(machine.get("disk_free_bytes")), float(GB), " GB"),
    )
    for what, word, advertised, has, unit, name in sizes:
        if has and has < advertised * (1 - MARGIN):
            said = f"{word}: {advertised / unit:.4g}{name} advertised, {has / unit:.4g}{name} found"
            yield Difference(what, advertised, has, said)


def _cpu(offer: Mapping[str, Any], machine: Mapping[str, Any]) -> Iterator[Difference]:
    asked, found = str(offer.get("cpu_model") or ""), str(machine.get("cpu_model") or "")
    if asked and found and found != machine.get("machine") and not _alike(plain(asked), plain(found)):
        yield Difference("cpu", asked, found, f"CPU: {asked} advertised, {found} found")


def _pcie(offer: Mapping[str, Any], telemetry: Mapping[str, Any]) -> Iterator[Difference]:
    """The narrowest link of all GPUs, as each was at its best under load: an idle one is narrow and slow by design."""
    lanes, generation = _number(offer.get("pcie_lanes")), _number(offer.get("pcie_gen"))
    measured = []
    for name in telemetry:
        gpu = name.removesuffix("_pcie_width_under_load")
        if gpu != name:
            measured.append((_number(telemetry[name]), _number(telemetry.get(f"{gpu}_pcie_gen_under_load"))))
    if not measured:
        return
    width, speed = min(measured, key=lambda link: link[0] * 2 ** link[1])
    if (width and width < lanes) or (speed and speed < int(generation)):
        advertised, has = _link(lanes or width, generation or speed), _link(width or lanes, speed or generation)
        yield Difference("pcie", advertised, has, f"PCIe {advertised} advertised, {has} under load")


def _link(lanes: float, generation: float) -> str:
    return f"{lanes:g}x Gen{int(generation)}"
