"""What this machine is, as the operating system tells it. No proof of anything: a host can lie."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

_CGROUP_MEMORY = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_GPU_QUERY = "index,name,uuid,memory.total,driver_version,power.limit"
_TELEMETRY_QUERY = "utilization.gpu,memory.used,temperature.gpu,power.draw"
NVIDIA_SMI_TIMEOUT_S = 10.0


def read_text(path: str | Path) -> str:
    """A small file of /proc, /sys or /etc, stripped; "" where it can't be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def cpu_model() -> str:
    """The CPU's own name, or the architecture where the kernel gives none."""
    for line in read_text("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Processor") and value.strip():
            return value.strip()
    return platform.machine()


def allowed_cores() -> list[int]:
    """The cores this process may run on, by number (the affinity mask, which containers set too)."""
    return sorted(os.sched_getaffinity(0))


def cpu_quota() -> float | None:
    """How many cores' worth of time the cgroup grants; None without a limit."""
    quota, _, period = read_text("/sys/fs/cgroup/cpu.max").partition(" ")
    if not quota:
        quota = read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if quota.isdigit() and period.isdigit() and int(period):
        return int(quota) / int(period)
    return None


def ram_bytes() -> int:
    """Physical memory, or the cgroup's limit where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_MEMORY:
        limit = read_text(path)
        if limit.isdigit():
            total = min(total, int(limit))
    return total


def disk_free_bytes(folder: str | Path) -> int:
    """Free bytes for us where `folder` lies."""
    return shutil.disk_usage(folder).free


def _nvidia_smi(query: str) -> list[list[str]]:
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        output = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, errors="replace", timeout=NVIDIA_SMI_TIMEOUT_S, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.strip()]


def gpus() -> list[dict[str, Any]]:
    """The NVIDIA GPUs that nvidia-smi shows; [] where there are none or it fails."""
    found = []
    for row in _nvidia_smi(_GPU_QUERY):
        if len(row) != 6:
            continue
        index, name, uuid, memory_mib, driver, power = row
        found.append(
            {"index": _number(index), "name": name, "uuid": uuid, "ram_bytes": int(_number(memory_mib)) << 20,
             "driver": driver, "power_limit_w": _number(power)}
        )  # fmt: skip
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def machine_facts(work: Path) -> dict[str, Any]:
    """Everything that the registration tells: CPU, memory, disk, GPUs, kernel, versions."""
    cards = gpus()
    return {
        "cpu_model": cpu_model(),
        "cpu_cores": len(allowed_cores()),
        "cpu_cores_of_machine": os.cpu_count() or 0,
        "cpu_quota": cpu_quota(),
        "ram_bytes": ram_bytes(),
        "disk_free_bytes": disk_free_bytes(work),
        "gpus": cards,
        "gpu_driver": cards[0]["driver"] if cards else "",
        "kernel": platform.release(),
        "os": platform.platform(terse=True),
        "machine": platform.machine(),
        "python": sys.version.split()[0],
    }


def telemetry(work: Path) -> dict[str, float]:
    """What a lease carries: load, memory, disk, and each GPU's use, heat and power."""
    values = {"load_1m": os.getloadavg()[0], "disk_free_bytes": float(disk_free_bytes(work))}
    for line in read_text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            values["ram_available_bytes"] = float(line.split()[1]) * 1024
    for i, row in enumerate(_nvidia_smi(_TELEMETRY_QUERY)):
        if len(row) == 4:
            names = ("util_percent", "ram_used_bytes", "temperature_c", "power_w")
            cells = [_number(cell) for cell in row]
            cells[1] *= 1024 * 1024
            values.update({f"gpu{i}_{name}": cell for name, cell in zip(names, cells, strict=True)})
    return values
