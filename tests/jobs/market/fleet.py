"""A marketplace of machines whose true speed nobody is told: what forecasts and choices are judged on.

Every machine's rate is the product of what its specs suggest, its model's, class's, host's and its own luck, and that
of the rental; the kinds of fleets differ in how large these are and in the shape of their tails.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from jobs.domain.market_models import Measurement, Offer

WORK = "groth16/bls12381/65536"
NOW = 1_780_000_000_000
GPUS = {
    "RTX 4090": (82.6, 24, 0.38), "RTX 3090": (35.6, 24, 0.19), "RTX 5090": (104.8, 32, 0.55), "L40S": (91.6, 48, 0.75),
    "H100 SXM": (66.9, 80, 2.1), "RTX A6000": (38.7, 48, 0.42), "RTX 4080": (48.7, 16, 0.27), "L4": (30.3, 24, 0.32),
}  # fmt: skip
CPUS = (
    "AMD EPYC 7763 64-Core Processor",
    "AMD EPYC 9654 96-Core Processor",
    "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz",
)


@dataclass(frozen=True)
class Kind:
    """Standard deviations of log rate at each level. `spread`: equal machines differ by this factor at most instead
    (uniform in log rate); `freedom`: Student's t with so many degrees of freedom instead of a normal. `price`: of the
    log price of equal offers."""

    model: float = 0.3
    klass: float = 0.1
    machine: float = 0.15
    host: float = 0.0
    rental: float = 0.04
    price: float = 0.1
    spread: float | None = None
    freedom: int | None = None
    gpus: tuple[str, ...] = tuple(GPUS)
    cpu_only: bool = False


class Fleet:
    """Machines with offers, and what renting one shows."""

    def __init__(self, kind: Kind, seed: int, machines: int = 64, classes: int = 3):
        self.dice, self.kind = np.random.default_rng(seed), kind
        models = {name: self.dice.normal(0, kind.model) for name in (CPUS if kind.cpu_only else kind.gpus)}
        sorts = {name: [self._sort() for _ in range(classes)] for name in models}
        hosts = self.dice.normal(0, kind.host, machines // 3 + 1)
        self.offers, self.log_rate = [], np.zeros(machines)
        for i in range(machines):
            name = str(self.dice.choice(list(models)))
            gpus, cores, cpu, ram_gib, luck = sorts[name][self.dice.integers(classes)]
            host = int(self.dice.integers(len(hosts)))
            self.offers.append(self._offer(i, name, gpus, cores, cpu, ram_gib, host))
            power = cores * 0.5 if kind.cpu_only else GPUS[name][0] * gpus
            self.log_rate[i] = np.log(12.0 * power) + models[name] + luck + hosts[host] + self._own()

    def _sort(self) -> tuple[int, int, str, int, float]:
        """A class: GPUs, cores, CPU, memory, luck."""
        gpus = int(self.dice.choice([1, 1, 2, 4]))
        cores = int(self.dice.choice([8, 16, 32, 64]))
        return gpus, cores, str(self.dice.choice(CPUS)), 4 * cores, self.dice.normal(0, self.kind.klass)

    def _own(self) -> float:
        if self.kind.spread is not None:
            return float(self.dice.uniform(-0.5, 0.5) * np.log(self.kind.spread))
        if self.kind.freedom is not None:
            freedom = self.kind.freedom
            return float(self.dice.standard_t(freedom) * self.kind.machine / np.sqrt(freedom / (freedom - 2)))
        return float(self.dice.normal(0, self.kind.machine))

    def _offer(self, i: int, name: str, gpus: int, cores: int, cpu: str, ram_gib: int, host: int) -> Offer:
        tflops, gib, dollars = (0.0, 0, 0.02 * cores) if self.kind.cpu_only else GPUS[name]
        gpus = 0 if self.kind.cpu_only else gpus
        facts = {"reliability": 0.99, "inet_down_mbps": 700.0, "disk_gb": 32, "disk_dollars_per_gb_month": 0.15}
        return Offer(
            provider="vast", offer_id=str(i), machine_id=str(i), host_id=str(host), gpu_model=name if gpus else "",
            num_gpus=gpus, gpu_ram_bytes=gib << 30, cpu_model=cpu if gpus else name, cpu_cores=cores,
            ram_bytes=ram_gib << 30, disk_bytes=10**12, location="",
            dollars_per_hour=dollars * max(gpus, 1) * float(self.dice.lognormal(0, self.kind.price)),
            facts={**facts, "tflops": tflops * gpus} if gpus else facts, seen_ms=NOW,
        )  # fmt: skip

    def rate(self, i: int) -> float:
        """Proofs an hour that this rental of machine i makes."""
        return float(np.exp(self.log_rate[i] + self.dice.normal(0, self.kind.rental)))

    def measured(self, i: int, at_ms: int = NOW) -> Measurement:
        """What a benchmark of twelve proofs on machine i writes down."""
        offer, noise = self.offers[i], float(self.dice.uniform(0.01, 0.03))
        rate = self.rate(i) * float(np.exp(self.dice.normal(0, noise)))
        specs = {name: offer.facts[name] for name in ("tflops", "inet_down_mbps") if name in offer.facts}
        return Measurement(
            provider="vast", machine_id=offer.machine_id, host_id=offer.host_id, gpu_model=offer.gpu_model,
            num_gpus=offer.num_gpus, cpu_model=offer.cpu_model, cpu_cores=offer.cpu_cores, ram_bytes=offer.ram_bytes,
            specs={**specs, "gpu_ram_bytes": offer.gpu_ram_bytes}, work=WORK, proofs_per_hour=rate,
            low=rate * float(np.exp(-1.645 * noise)), high=rate * float(np.exp(1.645 * noise)), proofs=12,
            boot_s=50.0, params_s=8.0, dollars_per_hour=offer.dollars_per_hour, at_ms=at_ms,
        )  # fmt: skip

    def dollars_per_proof(self, i: int, proofs: int, rate: float | None = None) -> float:
        """What machine i really costs for `proofs`, at its own mean rate or at this one, with 80 s before the first."""
        hours = 80 / 3600 + proofs / (rate or float(np.exp(self.log_rate[i])))
        return self.offers[i].dollars_per_hour * hours / proofs


def shuffled(fleet: Fleet, n: int) -> list[int]:
    """The numbers of `n` machines, drawn at random."""
    return [int(i) for i in fleet.dice.permutation(len(fleet.offers))[:n]]


def all_measured(fleet: Fleet, machines: Iterable[int]) -> list[Measurement]:
    return [fleet.measured(i) for i in machines]
