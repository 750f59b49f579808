"""Machines, and the slices of them that are on offer."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.fakes.vast.gpus import BY_NAME, GPUS, Gpu

CPUS = (
    ("AMD EPYC 7B13 64-Core Processor", 64, 2.2),
    ("AMD EPYC 7742 64-Core Processor", 128, 2.3),
    ("AMD EPYC 7543 32-Core Processor", 64, 2.8),
    ("AMD EPYC 9654 96-Core Processor", 192, 2.4),
    ("AMD Ryzen 9 5950X 16-Core Processor", 32, 3.4),
    ("AMD Ryzen 9 7950X 16-Core Processor", 32, 4.5),
    ("AMD Ryzen Threadripper PRO 5975WX 32-Cores", 64, 3.6),
    ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", 56, 2.4),
    ("Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", 80, 2.1),
    ("Intel(R) Xeon(R) Platinum 8480+", 112, 2.0),
    ("12th Gen Intel(R) Core(TM) i9-12900K", 24, 3.2),
    ("13th Gen Intel(R) Core(TM) i7-13700K", 24, 3.4),
)
PLACES = (
    "Quebec, CA", "Texas, US", "California, US", "Washington, US", ", US", "Sweden, SE", "Norway, NO", "Germany, DE",
    "France, FR", "Czechia, CZ", "Poland, PL", "Spain, ES", "United Kingdom, GB", "Japan, JP", "South Korea, KR",
    "Taiwan, TW", "Australia, AU", "Iceland, IS", "Bulgaria, BG", "Hong Kong, HK",
)  # fmt: skip
DISKS = ("Samsung SSD 980 PRO 2TB", "WD_BLACK SN850X 4TB", "KINGSTON SKC3000D2048G", "SAMSUNG MZQL23T8HCLS", "nvme")
# Equal offers were seen to prove at speeds that differ by this factor (lambda_vm #891).
SLOWEST, FASTEST = 0.62, 0.62 * 1.9


@dataclass(slots=True, eq=False, repr=False)
class Machine:
    """One computer. Nobody is told `true_speed`, its proofs per hour relative to a typical one of its kind, nor
    `trouble`, the share of its rentals that go wrong in a market that is `unreliable`.

    Prices are dollars: per GPU and hour, per GB and month for disk, per GB for traffic. `min_bid_share` is the
    lowest bid as a share of the price. `starts` is False when its GPUs can't be had just now although they are listed.
    """

    id: int
    host_id: int
    gpu: Gpu
    num_gpus: int
    dollars_per_gpu_hour: float
    true_speed: float = 1.0
    trouble: float = 0.0
    cpu_name: str = "AMD EPYC 7543 32-Core Processor"
    cpu_cores: int = 64
    cpu_ghz: float = 2.8
    cpu_ram_mb: int = 257_000
    disk_gb: float = 1_000.0
    disk_name: str = "nvme"
    disk_mbps: float = 2_800.0
    inet_up_mbps: float = 700.0
    inet_down_mbps: float = 800.0
    dollars_per_gb_up: float = 0.003
    dollars_per_gb_down: float = 0.002
    storage_dollars_per_gb_month: float = 0.15
    min_bid_share: float = 0.55
    reliability: float = 0.995
    verification: str = "verified"
    duration_s: float = 30 * 86_400.0
    cuda: float = 13.0
    driver: str = "580.65.06"
    pci_gen: float = 4.0
    pcie_gbps: float = 24.0
    direct_ports: int = 100
    static_ip: bool = True
    public_ip: str = "203.0.113.7"
    location: str = "Sweden, SE"
    datacenter: bool = False
    external: bool = False
    cpu_arch: str = "amd64"
    rentable: bool = True
    listed: bool = True
    starts: bool = True
    listed_ms: int = 0
    taken: dict[int, int] = field(default_factory=dict)
    """Which instance holds which GPU, by index."""
    offers: dict[tuple[int, ...], Offer] = field(default_factory=dict)
    """What of it is on offer now, by GPUs."""

    def __repr__(self) -> str:
        return f"<Machine {self.id}: {self.num_gpus}x {self.gpu.name}>"

    def free(self) -> list[int]:
        return [index for index in range(self.num_gpus) if index not in self.taken]


@dataclass(slots=True, eq=False, repr=False)
class Offer:
    """A slice: some GPUs of a machine, to be had under an id that lives as long as they are free.

    `price_factor` moves with the market; `row` is the part of its answers that stays, once it was made.
    """

    id: int
    machine: Machine
    gpus: tuple[int, ...]
    price_factor: float = 1.0
    row: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Offer {self.id}: {len(self.gpus)} of {self.machine!r} at ${self.dph_base:.4f}/h>"

    @property
    def dph_base(self) -> float:
        """Dollars per hour for the GPUs alone, on demand."""
        return self.machine.dollars_per_gpu_hour * len(self.gpus) * self.price_factor

    @property
    def min_bid(self) -> float:
        return round(self.dph_base * self.machine.min_bid_share, 6)

    @property
    def free(self) -> bool:
        return not any(index in self.machine.taken for index in self.gpus)


def slices(machine: Machine) -> list[tuple[int, ...]]:
    """What a machine's free GPUs are offered as: whole, halves, quarters... one slice of each size.

    Equal slices of one machine are shown as one offer, as Vast bundles them.
    """
    free = machine.free()
    size, found = machine.num_gpus, []
    while size >= 1:
        if len(free) >= size:
            found.append(tuple(free[:size]))
        size //= 2
    return found


def gpu_of(name: str) -> Gpu:
    """Raises ValueError for a model that nobody offers."""
    if name not in BY_NAME:
        raise ValueError(f"no GPU is called {name!r}: one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def draw(rng: Random, machine_id: int, host_id: int, now_ms: int) -> Machine:
    """A machine as one meets them: the price follows the model loosely, the speed follows nothing one can see."""
    gpu = rng.choice(GPUS)
    count = rng.choice(gpu.counts)
    cpu_name, cores, ghz = rng.choice(CPUS)
    datacenter = gpu.datacenter and rng.random() < 0.6
    verified = rng.random() < 0.86
    new = rng.random() < 0.08
    cuda = rng.choice((12.2, 12.4, 12.6, 12.8, 12.8, *(13.0,) * 9))
    down = round(rng.lognormvariate(6.6, 0.6), 1)
    machine = Machine(
        id=machine_id,
        host_id=host_id,
        gpu=gpu,
        num_gpus=count,
        dollars_per_gpu_hour=round(gpu.dollars_per_hour * rng.lognormvariate(0.0, 0.17), 6),
        true_speed=round(rng.uniform(SLOWEST, FASTEST), 4),
        cpu_name=cpu_name,
        cpu_cores=cores,
        cpu_ghz=ghz,
        cpu_ram_mb=rng.choice((32_000, 64_231, 128_690, 257_548, 515_842)) * (2 if datacenter else 1),
        disk_gb=round(rng.uniform(180, 3_500), 1),
        disk_name=rng.choice(DISKS),
        disk_mbps=round(rng.uniform(900, 7_000), 1),
        inet_down_mbps=down,
        inet_up_mbps=round(down * rng.uniform(0.3, 1.0), 1),
        dollars_per_gb_up=rng.choice((0.0, 0.002, 0.003, 0.005, 0.01, 0.02)),
        dollars_per_gb_down=rng.choice((0.0, 0.001, 0.002, 0.003, 0.01)),
        storage_dollars_per_gb_month=rng.choice((0.1, 0.15, 0.15, 0.2, 0.3)),
        min_bid_share=round(rng.uniform(0.4, 0.8), 3),
        reliability=0.6 if new else round(min(0.9999, 1 - rng.expovariate(120)), 7),
        verification="verified" if verified else rng.choice(("unverified", "unverified", "deverified")),
        duration_s=round(rng.uniform(0.4, 90) * 86_400.0, 1),
        cuda=max(cuda, gpu.min_cuda),
        driver={12.2: "535.183.01", 12.4: "550.90.07", 12.6: "560.35.03", 12.8: "570.86.15"}.get(cuda, "580.65.06"),
        pci_gen=rng.choice((3.0, 4.0, 4.0, 5.0)),
        pcie_gbps=round(rng.uniform(5.5, 26.0), 1),
        direct_ports=rng.choice((0, 2, 12, 49, 100, 249, 500)),
        static_ip=rng.random() < 0.7,
        public_ip=f"203.0.113.{machine_id % 254 + 1}",
        location=rng.choice(PLACES),
        datacenter=datacenter,
        external=rng.random() < 0.02,
        rentable=rng.random() < 0.97,
        listed_ms=now_ms - rng.randrange(86_400_000),
    )
    machine.trouble = round(min(0.5, 4 * (1 - machine.reliability)), 4)
    return machine
