"""Clues of several lines."""

from __future__ import annotations

from typing import Any

from jobs.diagnosis.across import across
from jobs.diagnosis.case import Case


def causes_of(facts: dict[str, Any] | None = None, /, **streams: list[str]) -> dict[str, float]:
    case = Case({f"{name}.log": lines for name, lines in streams.items()}, facts or {})
    return {clue.cause: clue.weight for clue in across(case)}


def test_hosts_of_several_owners_mean_the_machines_own_network() -> None:
    one = "curl: (7) Failed to connect to proofs.example.com port 443: timed out"
    found = causes_of(setup=[one, one.replace("proofs.example.com", "huggingface.co")])
    assert found["bad_host_network"] > 0 > found["param_fetch_network"]
    assert causes_of(setup=[one, one.replace("proofs", "mirror")]) == {}


def test_unrelated_programs_that_crash_mean_bad_memory() -> None:
    kernel = ["cron[2210]: segfault at 7f10", "traps: systemd-journal[611] general protection fault"]
    assert "bad_host_ram" in causes_of(kernel=kernel)
    assert causes_of(kernel=["prover[1]: segfault at 0", "cron[2210]: segfault at 7f10"]) == {}


def test_another_card_than_offered() -> None:
    offer = {"offer": {"gpu_name": "RTX 4090"}}
    assert "stale_offer" in causes_of(offer, setup=["GPU 0: NVIDIA GeForce RTX 4070 Ti (UUID: GPU-5b)"])
    assert causes_of(offer, setup=["GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-5b)"]) == {}


def test_another_revision_than_meant() -> None:
    meant = "manager meant rev f02b77a for this run"
    assert "stale_image" in causes_of(setup=[meant], daemon=["prover 4.5 rev 8c1d0fe built yesterday"])
    assert causes_of(setup=[meant], daemon=["prover 4.5 rev f02b77a built yesterday"]) == {}


def test_a_driver_of_an_older_cuda() -> None:
    smi = "| NVIDIA-SMI 470.57  Driver Version: 470.57  CUDA Version: 11.4 |"
    assert "driver_too_old" in causes_of(setup=[smi], daemon=["compiled with CUDA 12.4"])
    assert causes_of(setup=[smi], daemon=["compiled with CUDA 11.8"]) == {}


def test_a_power_limit_under_the_default() -> None:
    assert "power_cap" in causes_of(setup=["Power Limit : 165.00 W", "Default Power Limit : 320.00 W"])
