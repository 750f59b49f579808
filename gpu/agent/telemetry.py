"""The `gpu` stream: what each GPU does, once a second, as CSV. Its own thread: a driver in trouble may hang."""

from __future__ import annotations

import csv
import io
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpu.agent.stream import Source

INTERVAL_S = 1.0
BUSY_PERCENT = 40
BUSY_SAMPLES = 5  # an idle link is narrow and slow; after so many busy seconds it is as good as it gets
COLUMNS = (
    "time_ms", "index", "name", "utilization_gpu_percent", "utilization_memory_percent", "memory_used_mib",
    "memory_total_mib", "temperature_c", "power_w", "power_limit_w", "clock_sm_mhz", "clock_mem_mhz",
    "clock_sm_max_mhz", "pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max", "throttle_reasons",
    "ecc_uncorrected", "xid", "power_default_limit_w",
)  # fmt: skip
_NOW = {
    "util_percent": "utilization_gpu_percent",
    "temperature_c": "temperature_c",
    "power_w": "power_w",
    "pcie_gen_max": "pcie_gen_max",
    "pcie_width_max": "pcie_width_max",
}


@dataclass
class _Seen:
    """Of one GPU, over all samples."""

    lost: bool = False
    busy: int = 0
    pcie_gen: int = 0
    pcie_width: int = 0
    energy_before_j: float | None = None
    now: dict[str, float] = field(default_factory=dict)


class GpuTelemetry:
    """Samples into `source`. `notify` is told of what should be seen at once: a lost GPU, an Xid.

    `driver` and `cuda` are '' until a GPU was found. Without one, a line says so, and nothing more is done.
    """

    def __init__(self, source: Source, notify: Callable[..., None], clock_ms: Callable[[], int]):
        self.driver = self.cuda = ""
        self._source, self._notify, self._clock_ms = source, notify, clock_ms
        self._nvml: Any = None
        self._seen: dict[int, _Seen] = {}
        self._latest: dict[str, float] = {}
        self._stopping = threading.Event()

    def start(self) -> None:
        """Sample in a thread of its own until stopped."""
        threading.Thread(target=self._run, name="gpu", daemon=True).start()

    def stop(self) -> None:
        """One who is sampling finishes that; nobody waits for it: the driver may hang."""
        self._stopping.set()

    def latest(self) -> dict[str, float]:
        """What a lease carries: figures of now, and the best PCIe link and all joules since the beginning."""
        return self._latest

    def open(self) -> bool:
        """False where there is no GPU."""
        # Here and not above: on a machine without a GPU it would cost memory for nothing.
        from gpu.agent.nvml import NoGpus, Nvml

        try:
            self._nvml = Nvml()
        except NoGpus as error:
            self._source.feed(f"no GPU telemetry on this machine ({error})\n".encode())
            return False
        self.driver, self.cuda = self._nvml.driver, self._nvml.cuda
        self._seen = {gpu.index: _Seen() for gpu in self._nvml.gpus}
        self._write([COLUMNS])
        return True

    def sample(self) -> None:
        """One row for each GPU."""
        from gpu.agent.nvml import GpuLost

        now_ms, xids = self._clock_ms(), self._nvml.xids()
        for index, xid in xids:
            self._notify("xid", gpu=index, xid=xid)
        rows, latest = [], dict[str, float]()
        for gpu in self._nvml.gpus:
            mine = [xid for index, xid in xids if index == gpu.index]
            seen, values = self._seen[gpu.index], dict[str, Any]()
            try:
                values = gpu.sample()
                _note(seen, values, gpu.energy_j())
            except GpuLost as error:
                if not seen.lost:
                    self._notify("gpu_lost", gpu=gpu.index, model=gpu.name, error=str(error))
                elif not mine:
                    continue  # the row that shows that it was lost is there already
                seen.now = {}
            seen.lost = not values
            values |= {"time_ms": now_ms, "index": gpu.index, "name": gpu.name, "xid": mine[-1] if mine else None}
            rows.append([values.get(column) for column in COLUMNS])
            latest |= {f"gpu{gpu.index}_{name}": value for name, value in seen.now.items()}
        self._write(rows)
        self._latest = latest

    def _run(self) -> None:
        if not self.open():
            return
        due = time.monotonic()
        while not self._stopping.is_set():
            self.sample()
            due = max(due + INTERVAL_S, time.monotonic())
            self._stopping.wait(due - time.monotonic())

    def _write(self, rows: Any) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._source.feed(text.getvalue().encode())


def _note(seen: _Seen, values: dict[str, Any], energy_j: float | None) -> None:
    seen.now = {name: float(values[column]) for name, column in _NOW.items() if values[column] is not None}
    if values["memory_used_mib"] is not None:
        seen.now["ram_used_bytes"] = float(values["memory_used_mib"] << 20)
    if (values["utilization_gpu_percent"] or 0) >= BUSY_PERCENT:
        seen.busy += 1
        seen.pcie_gen = max(seen.pcie_gen, values["pcie_gen"] or 0)
        seen.pcie_width = max(seen.pcie_width, values["pcie_width"] or 0)
    if seen.busy >= BUSY_SAMPLES:
        seen.now |= {"pcie_gen_under_load": float(seen.pcie_gen), "pcie_width_under_load": float(seen.pcie_width)}
    if energy_j is not None:
        seen.energy_before_j = energy_j if seen.energy_before_j is None else seen.energy_before_j
        seen.now["energy_j"] = round(energy_j - seen.energy_before_j, 3)
