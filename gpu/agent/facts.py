"""What this machine is, as the operating system tells it. No proof of anything: a host can lie."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpu.agent.cgroup import Cgroup
from gpu.agent.procfs import Roots, read_text

_GPU_QUERY = "index,name,uuid,memory.total,driver_version,power.limit"
NVIDIA_SMI_TIMEOUT_S = 10.0


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
    _, limit = Cgroup(Roots()).memory()
    return total if limit is None else min(total, limit)


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
        **_core_dumps(),
    }


def _core_dumps() -> dict[str, Any]:
    """Where the kernel would write the dump of a program that crashes, and how much of it; None is without limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_CORE)
    limit = None if soft == resource.RLIM_INFINITY else soft
    return {"core_pattern": read_text("/proc/sys/kernel/core_pattern"), "core_limit_bytes": limit}
