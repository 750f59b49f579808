"""Advertised against found and measured: what is forgiven, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.domain.delivered import compare

GIB = 1 << 30
OFFER = {
    "gpu_model": "RTX 4090", "num_gpus": 2, "gpu_ram_bytes": 24_564 << 20,
    "cpu_model": "AMD EPYC 7763 64-Core Processor", "cpu_cores": 16, "ram_bytes": 64 * GIB, "disk_bytes": 32 * 10**9,
    "pcie_gen": 4.0, "pcie_lanes": 16,
}  # fmt: skip


def found(**more: Any) -> dict[str, Any]:
    card = {"name": "NVIDIA GeForce RTX 4090", "ram_bytes": 24_080 << 20}
    return {"gpus": [card, card], "cpu_model": "AMD EPYC 7763 64-Core Processor", "machine": "x86_64", "cpu_cores": 16,
            "cpu_quota": None, "ram_bytes": 62 * GIB, "disk_free_bytes": 31 * 10**9, **more}  # fmt: skip


def card(name: str = "NVIDIA GeForce RTX 4090", gib: float = 23.5) -> list[dict[str, Any]]:
    return [{"name": name, "ram_bytes": gib * GIB}] * 2


@pytest.mark.parametrize(
    ("more", "lacks"),
    [
        ({}, ""),
        ({"gpus": card()[:1]}, "GPUs: 2 advertised, 1 found"),
        ({"gpus": []}, "GPUs: 2 advertised, 0 found"),
        ({"gpus": card("NVIDIA GeForce RTX 3090")}, "RTX 4090 advertised, NVIDIA GeForce RTX 3090 found"),
        ({"gpus": card("NVIDIA GeForce RTX 4090 D")}, ""),
        ({"gpus": card(gib=22.0)}, ""),
        ({"gpus": card(gib=16.0)}, "GPU memory: 25.76 GB advertised, 17.18 GB found"),
        ({"cpu_quota": 8.0}, "CPU cores: 16 advertised, 8 found"),
        ({"cpu_cores": 15}, ""),
        ({"ram_bytes": 32 * GIB}, "memory: 68.72 GB advertised"),
        ({"disk_free_bytes": 10 * 10**9}, "disk: 32 GB advertised, 10 GB found"),
        ({"cpu_model": "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz"}, "CPU: AMD EPYC 7763"),
        ({"cpu_model": "AMD EPYC 7763"}, ""),
        ({"cpu_model": "x86_64"}, ""),
        ({"gpus": "none", "cpu_cores": "many", "ram_bytes": -1, "disk_free_bytes": True, "cpu_model": 7}, "CPU"),
    ],
)
def test_what_a_machine_lacks(more: dict[str, Any], lacks: str) -> None:
    said = "; ".join(difference.text for difference in compare(OFFER, found(**more)))
    assert (lacks in said) if lacks else said == ""


def link(gpu: int, lanes: float, generation: float) -> dict[str, float]:
    return {f"gpu{gpu}_pcie_width_under_load": lanes, f"gpu{gpu}_pcie_gen_under_load": generation}


@pytest.mark.parametrize(
    ("telemetry", "said"),
    [
        ({}, ""),
        ({"gpu0_util_percent": 3.0, "gpu0_pcie_gen_max": 4.0}, ""),
        (link(0, 16, 4), ""),
        (link(0, 16, 5), ""),
        (link(0, 8, 3), "PCIe 16x Gen4 advertised, 8x Gen3 under load"),
        ({**link(0, 16, 4), **link(1, 1, 4)}, "PCIe 16x Gen4 advertised, 1x Gen4 under load"),
        ({"gpu0_pcie_width_under_load": 4.0}, "PCIe 16x Gen4 advertised, 4x Gen4 under load"),
        ({"gpu0_pcie_width_under_load": float("nan"), "gpu0_pcie_gen_under_load": -1.0}, ""),
    ],
)
def test_a_link_is_judged_under_load_only(telemetry: dict[str, float], said: str) -> None:
    assert [difference.text for difference in compare(OFFER, found(), telemetry)] == ([said] if said else [])


def test_what_was_not_advertised_is_not_compared() -> None:
    assert compare({}, found(), link(0, 1, 1)) == []
    assert compare({"num_gpus": 1, "gpu_model": None}, {"gpus": card()}) == []
    assert compare(OFFER, {}) == []
