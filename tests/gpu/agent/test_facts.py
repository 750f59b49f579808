"""Facts of a machine with GPUs: `nvidia-smi` is stood in for by a program that prints what the real one prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu.agent import facts

SMI = """#!/bin/sh
echo '0, NVIDIA H200, GPU-6a3c, 143771, 580.95.05, 700.00'
echo 'garbage'
echo '1, NVIDIA H200, GPU-7b4d, 143771, 580.95.05, [N/A]'
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


def test_gpus(smi: Path, tmp_path: Path) -> None:
    found = facts.machine_facts(tmp_path)
    assert [(g["name"], g["uuid"], g["ram_bytes"] >> 30, g["power_limit_w"]) for g in found["gpus"]] == [
        ("NVIDIA H200", "GPU-6a3c", 140, 700.0),
        ("NVIDIA H200", "GPU-7b4d", 140, 0.0),
    ]
    assert found["gpu_driver"] == "580.95.05"


def test_an_nvidia_smi_that_fails_means_no_gpus(smi: Path, tmp_path: Path) -> None:
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not communicate' >&2; exit 9\n")
    assert facts.machine_facts(tmp_path)["gpus"] == []


def test_a_machine_without_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = facts.machine_facts(tmp_path)
    assert found["gpus"] == []
    assert found["cpu_cores"] == len(facts.allowed_cores()) >= 1
    assert found["ram_bytes"] > 0
    assert found["kernel"]
    assert found["core_pattern"] == Path("/proc/sys/kernel/core_pattern").read_text().strip()
