"""What is alike: names of GPUs and CPUs without their decoration, classes of machines, and what specs predict."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

Class = tuple[str, int, str, int, int]


class Described(Protocol):
    """A machine as an offer advertises it or as a measurement kept it."""

    provider: Any
    machine_id: Any
    gpu_model: Any
    num_gpus: Any
    cpu_model: Any
    cpu_cores: Any
    ram_bytes: Any


_DECORATION = re.compile(
    r"nvidia|geforce|tesla|\((r|tm)\)|\bcpu\b|processor|\d+-core|with .*|@.*|\b(amd|intel)\b", re.IGNORECASE
)
_SERIES = (
    (re.compile(r"epyc (\d)\w*(\d)\w?$"), r"epyc \1xx\2"),
    (re.compile(r"(xeon) (?:gold|silver|platinum|bronze) (\d)(\d).*"), r"\1 \2\3"),
    (re.compile(r"(xeon) (e\d)-?\d+ ?(v\d)?.*"), r"\1 \2 \3"),
    (re.compile(r"(ryzen|threadripper).*?(\d)\d{3}\w*.*"), r"\1 \2"),
    (re.compile(r"core i\d-(\d+)\d{3}\w*.*"), r"core \1"),
)


@lru_cache(4096)
def plain(name: str) -> str:
    """A model's name as everybody writes it: `NVIDIA GeForce RTX 4090` and `RTX_4090` are `rtx 4090`."""
    text = re.sub(r"[\s_\-]+", " ", _DECORATION.sub(" ", name.replace("_", " "))).strip().lower()
    return text[:60]


@lru_cache(4096)
def cpu_class(name: str) -> str:
    """The series and generation of a CPU: those of one class differ in cores and clock, not in kind."""
    text = plain(re.sub(r"\d+-Core", "", name, flags=re.IGNORECASE))
    for pattern, short in _SERIES:
        if pattern.search(text):
            return pattern.sub(short, text).strip()
    return text


def class_of(machine: Described) -> Class:
    """(model, GPUs, CPU series, cores, memory), the last two as powers of two.

    The model decides most of the speed: the GPU's, or of a machine without one the CPU's series.
    """
    return _class(machine.gpu_model, machine.num_gpus, machine.cpu_model, machine.cpu_cores, machine.ram_bytes)


@lru_cache(16_384)
def _class(gpu_model: str, num_gpus: int, cpu_model: str, cpu_cores: int, ram_bytes: int) -> Class:
    series = cpu_class(cpu_model)
    model = plain(gpu_model) if num_gpus else "cpu " + series
    gib = max(ram_bytes / 2**30, 1)
    return model, num_gpus, series, round(math.log2(max(cpu_cores, 1))), round(math.log2(gib))


PREDICTORS = ("CPU only", "GPU", "log cores, CPU only", "log cores, GPU", "log TFLOPS", "log GPU memory")
PER_CORE = math.log(34_000 * 3600)
"""Constraints an hour that a core proves: BN254 at 2^17, two cores of an EPYC (docs/performance.md), less start-up."""
PER_TFLOPS = math.log(50_000 * 3600)
"""The same for each TFLOPS (fp32) that a GPU advertises. Reckoned from counts of instructions; nothing was measured."""
PRIOR_MEAN = (PER_CORE, PER_TFLOPS, 0.9, 0.1, 0.8, 0.1)
PRIOR_SD = (0.7, 1.2, 0.2, 0.15, 0.25, 0.3)
TYPICAL_TFLOPS, TYPICAL_GIB, TYPICAL_CORES = 40.0, 24.0, 16.0
"""What is advertised is taken relative to these, so that the constants are of a typical machine."""


def predictors(machine: Described, facts: Mapping[str, Any], gpu_ram_bytes: float) -> tuple[float, ...]:
    """What the rate's logarithm is regressed on, in the order of `PREDICTORS`."""
    cores = math.log(max(machine.cpu_cores, 1))
    if not machine.num_gpus:
        return (1.0, 0.0, cores, 0.0, 0.0, 0.0)
    gib = max(gpu_ram_bytes / 2**30, 1.0) if gpu_ram_bytes else TYPICAL_GIB
    told = facts.get("tflops")
    tflops = float(told) if isinstance(told, int | float) and told > 0 else TYPICAL_TFLOPS * machine.num_gpus
    more_cores, more_gib = cores - math.log(TYPICAL_CORES), math.log(gib / TYPICAL_GIB)
    return (0.0, 1.0, 0.0, more_cores, math.log(tflops), more_gib)


CURVE_COST = {"bn254": 1.0, "bls12381": 2.0}
FIXED_COST = {False: 1_000, True: 60_000}
"""What every proof costs besides its size, in constraints: calls on a CPU, launches on a GPU."""


@lru_cache(1024)
def log_cost(work: str, on_gpu: bool) -> float:
    """The logarithm of a proof's cost in constraints of BN254; 0 for a work whose size is not known."""
    parts = work.split("/")
    if len(parts) != 3 or not parts[2].isdigit() or int(parts[2]) == 0:
        return 0.0
    return math.log(CURVE_COST.get(parts[1], 1.0) * (int(parts[2]) + FIXED_COST[on_gpu]))
