"""A rented slice: what Vast knows of it, and the row that it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.vast import offers
from tests.fakes.vast.accounts import Account
from tests.fakes.vast.billing import Meter
from tests.fakes.vast.clock import Event
from tests.fakes.vast.machines import Machine, Offer

# What the row of an instance has in common with that of an offer.
_HARDWARE = (
    "machine_id host_id gpu_name gpu_arch num_gpus gpu_frac gpu_ram gpu_total_ram gpu_mem_bw gpu_lanes bw_nvlink"
    " compute_cap total_flops dlperf cuda_max_good driver_version cpu_name cpu_arch cpu_cores cpu_cores_effective"
    " cpu_ghz cpu_ram has_avx mobo_name os_version disk_bw disk_name inet_up_cost inet_down_cost"
    " internet_up_cost_per_tb internet_down_cost_per_tb pci_gen pcie_bw direct_port_count static_ip reliability2"
    " verification hosting_type external geolocation storage_cost credit_discount_max credit_balance credit_discount"
    " bundle_id resource_type logo webpage"
)
HARDWARE = _HARDWARE.split()
BEAT_MS = 10_000
# Running, frozen, unknown, rebooting, and what nobody has heard of: the GPUs cost.
LOADING = frozenset((None, "created", "loading"))
UNBILLED = LOADING | {"stopped", "offline"}


@dataclass(slots=True, eq=False, repr=False)
class Instance:
    """`dph_base` is what the GPUs cost an hour: the price on demand, or the bid.

    `actual`, `intended`, `cur`, `next` are Vast's four states. `env` is what the container sees, `asked_env` what
    the create call had. `truth` is what the machine really has, where the row lies about it. `script` is the next
    step of its life, `overrides` replaces fields of its row.
    """

    id: int
    account: Account
    key: str
    machine: Machine
    offer: Offer
    created_ms: int
    end_ms: int
    label: str | None
    image: str
    disk_gb: float
    dph_base: float
    is_bid: bool
    meter: Meter
    env: dict[str, str] = field(default_factory=dict)
    asked_env: dict[str, str] = field(default_factory=dict)
    onstart: str = ""
    args: list[str] = field(default_factory=list)
    runtype: str = "ssh_proxy"
    template: str | None = None
    volume: dict[str, Any] | None = None
    foreign: bool = False
    touched: list[str] = field(default_factory=list)
    """Calls that changed it after its creation, as `METHOD path`."""

    actual: str | None = None
    intended: str = "running"
    cur: str = "unloaded"
    next: str = "running"
    msg: str | None = None
    ports_open: bool = False
    has_booted: bool = False
    started_ms: int | None = None
    exit_code: int | None = None
    destroyed_ms: int | None = None
    shown_from_ms: int = 0
    listed_from_ms: int = 0
    script: Event | None = None
    ssh_direct_up: bool = True
    ssh_proxy_up: bool = True
    first_port: int = 0
    """The first of its outside ports, which the host chooses."""
    truth: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    ssh_keys: list[dict[str, Any]] = field(default_factory=list)
    log: list[tuple[int, bytes]] = field(default_factory=list)
    daemon_log: list[tuple[int, bytes]] = field(default_factory=list)
    beat_ms: int | None = None
    log_source: Callable[[], bytes] | None = None
    """Where a real container's output comes from, once one runs."""

    def __repr__(self) -> str:
        state = self.actual if self.live else "destroyed"
        return f"<Instance {self.id} {self.label!r} {state} of {self.account.name}>"

    @property
    def live(self) -> bool:
        return self.destroyed_ms is None

    @property
    def jupyter_token(self) -> str:
        return f"{self.id * 2_654_435_761 % 2**64:016x}"

    @property
    def gpu_billed(self) -> bool:
        """Whether the state is one in which the GPUs cost; loading is the market's own question."""
        if self.cur == "stopped" or self.actual in UNBILLED:
            return False
        return self.actual != "exited" or self.cur == "running"

    @property
    def disk_dollars_per_hour(self) -> float:
        return self.machine.storage_dollars_per_gb_month * self.disk_gb / offers.HOURS_PER_MONTH

    def inside_ports(self) -> list[str]:
        """What is mapped, as `22/tcp`: ssh unless the image's own process runs, and what the flags ask for."""
        wanted = [] if self.runtype == "args" else ["22/tcp"]
        for flag in self.asked_env:
            if flag.startswith("-p "):
                inside = flag.removeprefix("-p ").split(":")[-1]
                wanted.append(inside if "/" in inside else f"{inside}/tcp")
        return list(dict.fromkeys(wanted))

    def beat(self, now_ms: int) -> None:
        """Print what a running container has printed by itself since the last time anybody looked."""
        if self.actual != "running" or self.beat_ms is None or self.log_source is not None:
            return
        while self.beat_ms + BEAT_MS <= now_ms:
            self.beat_ms += BEAT_MS
            self.write(self.beat_ms, f"[{self.beat_ms // 1000}] still here\n")

    def write(self, now_ms: int, text: str | bytes) -> None:
        """The container prints."""
        self.log.append((now_ms, text if isinstance(text, bytes) else text.encode()))

    def say(self, now_ms: int, text: str) -> None:
        """The host's daemon notes."""
        self.daemon_log.append((now_ms, f"{text}\n".encode()))


# Stored columns may be filtered and sorted by, computed ones not.
_STORED = (
    "id label actual_status intended_status cur_state next_state gpu_name verification machine_id host_id image_uuid"
    " start_date end_date is_bid geolocation template_id template_hash_id status_msg"
)
STORED = frozenset(_STORED.split())


def column(i: Instance, name: str) -> Any:
    """One stored column, without making the whole row."""
    if name in i.overrides:
        return i.overrides[name]
    match name:
        case "id":
            return i.id
        case "label":
            return i.label
        case "actual_status":
            return i.actual
        case "gpu_name":
            return i.machine.gpu.name
        case "machine_id":
            return i.machine.id
    return row(i, i.created_ms).get(name)


def row(i: Instance, now_ms: int, skew_ms: int = 0) -> dict[str, Any]:
    """The row as show and list give it. Times are the market's own: `skew_ms` off everybody else's."""
    source = offers.row(i.offer)
    found = {name: source[name] for name in HARDWARE}
    disk = i.disk_dollars_per_hour
    total = i.dph_base + disk
    running = i.actual == "running"
    started = i.started_ms if i.has_booted else None
    begin = i.created_ms if i.started_ms is None else i.started_ms
    seen = i.actual is not None
    ports, start_port = _ports(i)
    found.update(
        id=i.id,
        actual_status=i.actual,
        intended_status=i.intended,
        cur_state=i.cur,
        next_state=i.next,
        status_msg=i.msg,
        label=i.label,
        image_uuid=i.image,
        image_args=list(i.args),
        image_runtype=i.runtype,
        extra_env=[[k, v] for k, v in i.asked_env.items()],
        onstart=i.onstart or None,
        template_id=None,
        template_hash_id=i.template,
        template_name=None,
        jupyter_token=i.jupyter_token,
        ssh_host=f"ssh{i.id % 9 + 1}.vast.ai",
        ssh_port=10_000 + i.id % 50_000,
        ssh_idx=str(i.id % 9 + 1),
        machine_dir_ssh_port=1_000 + i.machine.id % 8_000,
        public_ipaddr=f"{i.machine.public_ip}\n" if not running else i.machine.public_ip,
        local_ipaddrs="192.168.1.7 172.17.0.1 \n",
        direct_port_start=start_port,
        direct_port_end=start_port + len(ports) - 1 if ports else -1,
        start_date=(i.created_ms + skew_ms) / 1000,
        end_date=(i.end_ms + skew_ms) / 1000,
        duration=max(0.0, (i.end_ms - now_ms) / 1000),
        uptime_mins=(now_ms - started) / 60_000 if started and running else None,
        is_bid=i.is_bid,
        min_bid=i.offer.min_bid,
        dph_base=i.dph_base,
        dph_total=total,
        storage_total_cost=disk,
        disk_space=i.disk_gb,
        disk_usage=2.4 if i.has_booted else -1.0,
        disk_util=2.4 / i.disk_gb if i.has_booted else -1.0,
        gpu_util=0.0 if i.has_booted else None,
        gpu_temp=41.0 if i.has_booted else None,
        cpu_util=0.7 if i.has_booted else 0.0,
        mem_usage=1.1 if i.has_booted else None,
        mem_limit=source["cpu_ram"] / 1000 * source["gpu_frac"] if seen else None,
        vmem_usage=0.4 if i.has_booted else None,
        inet_up=source["inet_up"],
        inet_down=source["inet_down"],
        inet_up_billed=None,
        inet_down_billed=None,
        client_run_time=max(0.0, (now_ms - begin) / 3_600_000),
        host_run_time=2_592_000.0,
        country_code=source["geolocation"].rsplit(", ", 1)[-1],
        volume_info=i.volume,
        rentable=False,
        rented=True,
        search={
            "gpuCostPerHour": i.dph_base,
            "diskHour": disk,
            "totalHour": total,
            "discountTotalHour": 0.0,
            "discountedTotalPerHour": total,
        },
        instance={
            "gpuCostPerHour": i.dph_base,
            "diskHour": disk,
            "totalHour": total,
            "discountTotalHour": 0.0,
            "discountedTotalPerHour": total,
        },
    )
    if i.actual not in (None, "created"):
        found["ports"] = ports
    if i.overrides:
        found.update(i.overrides)
    return found


def _ports(i: Instance) -> tuple[dict[str, list[dict[str, str]]], int]:
    """(mapping, first port). Open only while the container runs; outside ports are the host's choice."""
    if not i.ports_open or i.actual != "running":
        return {}, -1
    start = i.first_port
    mapped = {
        name: [{"HostIp": "0.0.0.0", "HostPort": str(start + n)}, {"HostIp": "::", "HostPort": str(start + n)}]
        for n, name in enumerate(i.inside_ports())
    }
    return mapped, start if mapped else -1
